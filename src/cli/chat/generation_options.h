// GenerationOptions: how answers are chosen and ended, as the command line gives it.
//
// Thread rule: values.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "runtime/sampler.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so
class App;
}

namespace shoal::cli {

// What `shoal run` samples with unless told otherwise.
runtime::SamplingParams default_sampling();

struct GenerationOptions {
  runtime::SamplingParams sampling = default_sampling();
  std::string seed = "-1";
  std::vector<std::string> logit_bias;  // "ID=BIAS"
  std::vector<std::string> stops;
  uint32_t tokens_max = 0;  // 0: until the model ends or the context is full
  bool ignores_end = false;
};

void add_generation_options(CLI::App& command, GenerationOptions* options);

// The parameters with seed and biases parsed in, checked as far as that needs no model.
Result<runtime::SamplingParams> sampling_params(const GenerationOptions& options);

}  // namespace shoal::cli

// ModelRuns: the measured runs of `shoal bench model`, and what they add up to.
//
// A run at depth d: the session holds d tokens; then a prompt is read on top of them (prefill),
// and, from d tokens anew, tokens are decoded one by one. So both speeds are those at that depth.
// Thread rule: the thread of the engine.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "cli/bench/samples.h"
#include "cli/support/model_setup.h"
#include "tensor/machine/step_clock.h"

namespace shoal::cli {

struct RunShape {
  uint32_t prompt_tokens = 512;
  uint32_t answer_tokens = 128;
};

// One stage at one depth.
struct StageFigures {
  Samples tokens_per_second;
  // [rank][phase] seconds of all workers together, over all runs.
  std::vector<std::array<double, tensor::kPhases>> phase_seconds;
  double worker_seconds = 0;  // of all workers of all ranks, over all runs
  // Of one run, as rank 0 saw them.
  uint64_t collective_operations = 0;
  uint64_t collective_bytes = 0;

  // Of the time of all workers of all ranks.
  double share(tensor::Phase phase) const;
};

struct DepthFigures {
  uint32_t depth = 0;
  StageFigures prefill;
  StageFigures decode;
};

class ModelRuns {
 public:
  ModelRuns(LoadedModel& loaded, const RunShape& shape) : loaded_(loaded), shape_(shape) {}

  // The first one, not to be counted: seconds until the first token after a prompt.
  Result<double> warm_up();
  // Fills a session to the depth.
  Status open(uint32_t depth);
  // kRequest when a signal asked to stop.
  Status measure(DepthFigures* figures);
  Status close();

 private:
  struct Part {
    size_t prompt = 0;  // of tokens_, from the beginning
    uint32_t answer = 1;
  };
  Result<runtime::GenerateResult> generate(const Part& part);
  Status run(const Part& part, tensor::Stage stage, StageFigures* figures);

  LoadedModel& loaded_;
  const RunShape shape_;
  uint32_t depth_ = 0;
  runtime::SessionId session_ = 0;
  std::vector<int32_t> tokens_;
};

// Tokens without meaning, the same in every run.
std::vector<int32_t> meaningless_tokens(size_t count, size_t vocabulary);

}  // namespace shoal::cli

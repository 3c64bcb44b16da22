// LogprobReader: log-probabilities of a step's output under the model's own distribution.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "runtime/engine.h"
#include "runtime/sampling/logits.h"
#include "runtime/serve/generation.h"

namespace shoal::runtime {

struct TokenLogprobs {
  float chosen = 0;
  std::span<const TokenLogprob> top;  // as GeneratedToken::top; until the reader's next read()
};

class LogprobReader {
 public:
  // What an output's log-sum-exp should be taken at, for a sampler that wants none or the same.
  static constexpr float kInverseTemperature = 1;

  // Of `output` of the engine's last step, which had `chosen` sampled from it. Uses the summary
  // where that is enough, else all logits; which of these depends on the output alone.
  Result<TokenLogprobs> read(Engine& engine, size_t output, TokenId chosen, uint32_t top);

 private:
  LogitSummary own_;
  std::vector<TokenLogprob> top_;
};

}  // namespace shoal::runtime

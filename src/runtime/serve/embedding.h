// EmbeddingRequest and what comes of it: one vector for a text, that a Scheduler computes.
//
// Thread rule: values; an EmbeddingSink is called on the scheduler's thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/status.h"
#include "model/model_config.h"
#include "runtime/token.h"

namespace shoal::runtime {

struct EmbeddingResult {
  // As GenerationResult::status, such as "non-finite hidden states".
  Status status;
  bool is_cancelled = false;
  // [Engine::hidden_size()], pooled over the tokens' hidden states behind the final norm, not
  // normalized. Finite. Empty unless status is ok and it was not cancelled.
  std::vector<float> values;
  size_t prompt_tokens = 0;
  double queue_seconds = 0;    // from embed() to the first step with a token of it
  double compute_seconds = 0;  // from there to the end
};

// Where it goes. By the rules of TokenSink.
class EmbeddingSink {
 public:
  virtual ~EmbeddingSink() = default;
  // Exactly once for every request that embed() took.
  virtual void on_embedding(EmbeddingResult result) = 0;
};

struct EmbeddingRequest {
  std::vector<TokenId> prompt{};
  model::Pooling pooling = model::Pooling::kLast;
  // Shared: the scheduler calls it once, though the client may have gone before.
  std::shared_ptr<EmbeddingSink> sink{};
};

}  // namespace shoal::runtime

// GenerationRequest and what comes of it: a token stream that a Scheduler computes.
//
// Thread rule: values; a TokenSink is called on the scheduler's thread only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "runtime/engine.h"
#include "runtime/sampler.h"
#include "runtime/sampling/token_mask.h"
#include "runtime/token.h"

namespace shoal::runtime {

using RequestId = uint64_t;  // never 0, never used twice by one scheduler

struct TokenLogprob {
  TokenId id = 0;
  float logprob = 0;  // natural logarithm of the probability; finite, at most 0
};

struct GeneratedToken {
  TokenId id = 0;
  size_t index = 0;  // of the answer, from 0
  // With GenerationRequest::want_logprobs: of the model's own distribution, before penalties,
  // biases, temperature and filters. A token that the model holds for impossible, but that a bias
  // forced, has the lowest finite value.
  float logprob = 0;
  // The most likely tokens, in falling order, ties by rising id; logprobs_top of them, fewer where
  // the model holds all others for impossible. Borrowed for the call.
  std::span<const TokenLogprob> top;
};

struct GenerationResult {
  // Not ok: the answer broke off. kRequest: this request alone is at fault (such as "non-finite
  // logits"); kBusy: the scheduler was shut down; kGroup, kNode: the engine is broken, every
  // request ends with this status and so does every later submit().
  Status status;
  StopReason reason = StopReason::kTokensMax;  // where status is ok
  uint64_t seed = 0;                           // repeats this answer
  size_t prompt_tokens = 0;
  size_t reused_tokens = 0;     // of the prompt, taken from the prefix cache
  size_t generated_tokens = 0;  // those that the sink got
  double queue_seconds = 0;     // from submit() to the first step with a token of it
  double prefill_seconds = 0;   // from there to the first token
  double decode_seconds = 0;    // from there to the end
};

// Where an answer goes. Both calls are made on the scheduler's thread while every other request
// waits: they hand over and return, they do not block, and they do not call the scheduler except
// for cancel(), submit() and stats().
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  // Each token as it is chosen, the end token excluded. False ends the answer with kStopped (a stop
  // string was met).
  virtual bool on_token(const GeneratedToken& token) = 0;
  // Exactly once for every request that submit() took, after its last token.
  virtual void on_finished(const GenerationResult& result) = 0;
};

struct GenerationRequest {
  static constexpr uint32_t kLogprobsTopMax = 20;

  std::vector<TokenId> prompt;
  SamplingParams sampling;
  uint32_t tokens_max = 0;  // 0: until the context is full
  // The answer ends before any of these (kEndOfGeneration).
  std::vector<TokenId> end_tokens;
  bool want_logprobs = false;
  uint32_t logprobs_top = 0;  // at most kLogprobsTopMax; only with want_logprobs
  // What the answer must be; null: anything. Where nothing may follow, the answer ends with
  // kEndOfGeneration. Shared by a request's answers, which each start it anew.
  std::shared_ptr<const TokenGrammar> grammar;
  // Shared: the scheduler calls it until on_finished, though the client may have gone before.
  std::shared_ptr<TokenSink> sink;
};

}  // namespace shoal::runtime

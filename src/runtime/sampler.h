// Sampler: chooses a request's next token from logits.
//
// In this order, each step off by default except the temperature:
//   1. penalties on the model's logits: repetition (tokens of prompt and answer, once per distinct
//      token: a positive logit is divided by it, a negative one multiplied), then frequency (times
//      the count) and presence; the last two count tokens of the answer only, as OpenAI's do;
//   2. logit_bias is added; banned tokens, and those that a mask leaves out, become -infinity;
//   3. temperature 0 (or below 0.0001) takes the best, lowest id among equals, and stops here;
//   4. logits are divided by the temperature; then top_k, top_p over what top_k left, min_p.
// The draw is from the kept tokens in falling order, with CounterRandom: seed and draw number give
// the same token on every platform.
// NaN, +infinity, or nothing but -infinity is the request's error "non-finite logits".
// Thread rule: one thread at a time. Memory: 9 bytes per vocabulary entry, up to 37 once all
// logits were changed or sorted.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "runtime/sampling/logits.h"
#include "runtime/sampling/random.h"
#include "runtime/sampling/token_mask.h"
#include "runtime/token.h"
#include "tensor/kernel_path.h"

namespace shoal::runtime {

struct LogitBias {
  TokenId id = 0;
  float bias = 0;
};

struct SamplingParams {
  float temperature = 1;         // 0: greedy
  int32_t top_k = 0;             // 0: off
  float top_p = 1;               // 1: off
  float min_p = 0;               // 0: off
  float repetition_penalty = 1;  // 1: off; below 1 rewards repetition
  float presence_penalty = 0;    // 0: off; negative values reward
  float frequency_penalty = 0;   // 0: off; negative values reward
  std::optional<uint64_t> seed;  // none: a random one
  std::vector<LogitBias> logit_bias;
  std::vector<TokenId> banned;  // never chosen, such as end-of-generation under ignore_eos
};

// kRequest with the parameter's name, value and range where `params` cannot be meant.
Status validate(const SamplingParams& params, size_t vocabulary);

// "-1", "null" and "random": no seed, so a random one; 0 to 2^64-1: that seed; else kRequest.
Result<std::optional<uint64_t>> parse_seed(std::string_view text);

class Sampler {
 public:
  static constexpr float kTemperatureMin = 1e-4F;  // anything below is greedy

  static Result<Sampler> create(SamplingParams params, size_t vocabulary);

  // The token's place in the penalties' history.
  void accept_prompt(TokenId id);
  void accept_generated(TokenId id);

  // The next token, one that the mask allows, which the caller then accepts. No token: the summary
  // is not enough to be sure, give the full logits of the same position (no draw was used up).
  Result<std::optional<TokenId>> sample(const LogitView& logits, const TokenMask& mask = {});

  // What a summary's log_sum_exp should be taken at; 0: it is not needed.
  float inverse_temperature() const {
    return is_greedy() || params_.top_k > 0 ? 0.0F : 1.0F / params_.temperature;
  }
  // A summary with that many candidates is not worth asking for: it would not be enough.
  bool wants_full(size_t candidates_max, const TokenMask& mask = {}) const;
  uint64_t seed() const { return random_.seed(); }
  const SamplingParams& params() const { return params_; }

 private:
  Sampler(SamplingParams params, size_t vocabulary, uint64_t seed);
  bool is_greedy() const { return params_.temperature < kTemperatureMin; }
  float adjusted(Candidate candidate) const;
  bool adjusts_logits() const;
  bool may_raise_logits() const;
  Result<std::optional<TokenId>> sample_full(std::span<const float> logits);
  Result<std::optional<TokenId>> sample_summary(const LogitSummary& summary);
  size_t mask_words() const {
    return (seen_.size() + TokenMask::kWordBits - 1) / TokenMask::kWordBits;
  }
  size_t count_allowed() const;
  void take_allowed(std::span<const float> logits);
  std::span<const float> adjust(std::span<const float> logits);
  double log_sum_of_heap() const;
  // log_total: ln of the sum of exp(logit / temperature) over all tokens.
  std::optional<TokenId> draw(double log_total, bool complete);
  bool next_falling();

  SamplingParams params_;  // logit_bias sorted by id, with the banned tokens in it
  CounterRandom random_;
  std::vector<uint8_t> seen_;        // [vocabulary] in prompt or answer
  std::vector<uint32_t> generated_;  // [vocabulary] times in the answer
  std::vector<TokenId> distinct_;    // those seen, in the order in which they came
  bool any_generated_ = false;
  std::vector<Candidate> heap_;   // adjusted candidates not yet taken, best in front
  std::vector<Candidate> taken_;  // in falling order
  // Of the call under way.
  TokenMask mask_;
  std::vector<float> adjusted_;  // [vocabulary] what adjust() has made
  LogitSummary summary_;
  tensor::KernelPath path_ = tensor::best_kernel_path();
};

}  // namespace shoal::runtime

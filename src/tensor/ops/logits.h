// What a rank tells about its rows of the vocabulary: the best candidates and the log-sum-exp.
//
// Thread rule: pure functions of one thread; ties go to the lowest token id everywhere.
#pragma once

#include <cstdint>
#include <span>

namespace shoal::tensor {

struct Candidate {
  int32_t token = 0;
  float logit = 0;
};

struct LogitSummary {
  float log_sum_exp = 0;  // natural logarithm of the sum of exp(logit); -inf for no logits
  bool is_finite = true;  // false when a logit is NaN or +infinity; -infinity is a masked token
};

LogitSummary summarize_logits(std::span<const float> logits);

// The best min(logits.size(), out.size()) logits, best first, into the front of `out`; returns how
// many. Token ids count from first_token. NaN ranks below everything.
int64_t top_candidates(std::span<const float> logits, int32_t first_token,
                       std::span<Candidate> out);

// log(exp(a) + exp(b)), also with -infinity.
float log_add_exp(float a, float b);

}  // namespace shoal::tensor

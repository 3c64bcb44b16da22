// LogitView: what a sampler sees of one position's logits, all of them or provably enough.
//
// Ranks own rows of the vocabulary. For most requests rank 0 needs only each rank's best tokens and
// its log-sum-exp (LogitSummary), not all logits. docs/step_protocol.md says how they travel.
// Thread rule: values and borrowed spans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/token.h"
#include "tensor/kernel_path.h"

namespace shoal::runtime {

struct Candidate {
  TokenId id = 0;
  float logit = 0;
};

// The order of all candidate lists: falling logit, then rising id.
inline bool comes_before(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// Some rows of the vocabulary in short.
struct LogitSummary {
  std::vector<Candidate> top;     // the best, in the order of comes_before
  double log_sum_exp = 0;         // ln(sum of exp(logit * inverse_temperature)) over the rows
  float inverse_temperature = 1;  // that log_sum_exp was taken at; 0: it was not wanted
  uint64_t rows = 0;              // how many rows it covers
  bool non_finite = false;        // a row was NaN or +infinity
};

// Summarizes `logits`, the rows from first_id on, into *out; reuses its memory.
struct SummaryRequest {
  TokenId first_id = 0;
  size_t top_max = 0;
  float inverse_temperature = 1;
  tensor::KernelPath path = tensor::KernelPath::kPortable;  // that computes the log-sum-exp
};
void summarize(std::span<const float> logits, const SummaryRequest& request, LogitSummary* out);

// Joins the summaries of ranks into one of the best top_max; all at one temperature.
void merge(std::span<const LogitSummary> parts, size_t top_max, LogitSummary* out);

struct LogitView {
  // [vocabulary], or empty: then `summary` is all there is.
  std::span<const float> full;
  const LogitSummary* summary = nullptr;
};

}  // namespace shoal::runtime

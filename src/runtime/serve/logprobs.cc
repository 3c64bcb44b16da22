#include "runtime/serve/logprobs.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

namespace shoal::runtime {
namespace {

float logprob_of(float logit, double log_sum_exp) {
  const double logprob = double{logit} - log_sum_exp;
  return std::max(static_cast<float>(std::min(logprob, 0.0)), std::numeric_limits<float>::lowest());
}

std::optional<float> logit_of(const LogitSummary& summary, TokenId id) {
  for (const Candidate& candidate : summary.top) {
    if (candidate.id == id) return candidate.logit;
  }
  return std::nullopt;
}

}  // namespace

Result<TokenLogprobs> LogprobReader::read(Engine& engine, size_t output, TokenId chosen,
                                          uint32_t top) {
  const LogitSummary* summary = &engine.summary(output);
  std::optional<float> logit;
  const bool is_complete = summary->top.size() == summary->rows;
  if (summary->inverse_temperature == kInverseTemperature &&
      (is_complete || summary->top.size() >= top)) {
    logit = logit_of(*summary, chosen);
  }
  if (!logit.has_value()) {
    ASSIGN_OR_RETURN(const std::span<const float> logits, engine.fetch_logits(output));
    SummaryRequest request;
    request.top_max = top;
    request.inverse_temperature = kInverseTemperature;
    summarize(logits, request, &own_);
    summary = &own_;
    logit = logits[static_cast<size_t>(chosen)];
  }
  top_.clear();
  for (const Candidate& candidate : summary->top) {
    if (top_.size() == top || candidate.logit == -std::numeric_limits<float>::infinity()) break;
    top_.push_back({candidate.id, logprob_of(candidate.logit, summary->log_sum_exp)});
  }
  return TokenLogprobs{logprob_of(*logit, summary->log_sum_exp), top_};
}

}  // namespace shoal::runtime

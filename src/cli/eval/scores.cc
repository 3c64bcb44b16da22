#include "cli/eval/scores.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace shoal::cli {

Status Scores::add(std::span<const float> logits, int32_t next) {
  CHECK(next >= 0 && static_cast<size_t>(next) < logits.size());
  const float largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  log_sum_exp_ = largest + std::log(sum);
  if (!std::isfinite(log_sum_exp_)) {
    return Status::request("non-finite logits: the model's weights or the kernels are broken");
  }
  negative_log_sum_ += log_sum_exp_ - logits[static_cast<size_t>(next)];
  ++positions_;
  return Status::ok();
}

Status Scores::compare(std::span<const float> logits, const Reference::Position& reference) {
  double divergence = 0;
  double reference_mass = 0;
  double model_mass = 0;
  for (size_t i = 0; i < Reference::kTop; ++i) {
    const size_t id = reference.ids[i];
    if (id >= logits.size()) {
      return Status::request(fmt::format(
          "the reference names token {} and the model has {}: it was made for another model", id,
          logits.size()));
    }
    const double log_p = reference.log_probabilities[i];
    const double log_q = logits[id] - log_sum_exp_;
    const double p = std::exp(log_p);
    divergence += p * (log_p - log_q);
    reference_mass += p;
    model_mass += std::exp(log_q);
  }
  const double reference_rest = 1 - reference_mass;
  if (reference_rest > 0) {
    // What rounding leaves of a rest that is nearly nothing must not become a logarithm of zero.
    const double model_rest = std::max(1 - model_mass, 1e-12);
    divergence += reference_rest * std::log(reference_rest / model_rest);
  }
  divergences_.add(divergence);
  const auto best = std::max_element(logits.begin(), logits.end()) - logits.begin();
  if (best == reference.ids[0]) ++same_best_;
  return Status::ok();
}

double Scores::perplexity() const {
  return positions_ == 0 ? 0 : std::exp(negative_log_sum_ / static_cast<double>(positions_));
}

std::optional<Divergence> Scores::divergence() const {
  if (divergences_.size() == 0) return std::nullopt;
  return Divergence{
      .mean = divergences_.mean(),
      .median = divergences_.median(),
      .p99 = divergences_.quantile(0.99),
      .max = divergences_.quantile(1),
      .same_best = static_cast<double>(same_best_) / static_cast<double>(divergences_.size())};
}

}  // namespace shoal::cli

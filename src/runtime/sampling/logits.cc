#include "runtime/sampling/logits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "tensor/ops/sum_exp.h"

namespace shoal::runtime {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// Keeps *heap (a heap whose front is the worst) the best top_max of what was offered.
void offer(Candidate candidate, size_t top_max, std::vector<Candidate>* heap) {
  if (heap->size() < top_max) {
    heap->push_back(candidate);
    std::push_heap(heap->begin(), heap->end(), comes_before);
  } else if (comes_before(candidate, heap->front())) {
    std::pop_heap(heap->begin(), heap->end(), comes_before);
    heap->back() = candidate;
    std::push_heap(heap->begin(), heap->end(), comes_before);
  }
}

}  // namespace

void summarize(std::span<const float> logits, const SummaryRequest& request, LogitSummary* out) {
  out->top.clear();
  out->top.reserve(request.top_max + 1);
  out->inverse_temperature = request.inverse_temperature;
  out->rows = logits.size();
  out->non_finite = false;
  float best = kMinusInfinity;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = logits[i];
    out->non_finite |= !(logit < std::numeric_limits<float>::infinity());
    best = std::max(best, logit);
    // A row of the worst kept logit has a higher id than those kept, so it need not be offered.
    if (request.top_max > 0 &&
        (out->top.size() < request.top_max || logit > out->top.front().logit)) {
      offer({request.first_id + static_cast<TokenId>(i), logit}, request.top_max, &out->top);
    }
  }
  std::sort_heap(out->top.begin(), out->top.end(), comes_before);

  out->log_sum_exp = kMinusInfinity;
  if (out->non_finite || best == kMinusInfinity || request.inverse_temperature == 0) return;
  const double sum = tensor::sum_exp(
      logits, {.shift = best, .scale = request.inverse_temperature, .path = request.path});
  out->log_sum_exp = double{best} * double{request.inverse_temperature} + std::log(sum);
}

void merge(std::span<const LogitSummary> parts, size_t top_max, LogitSummary* out) {
  CHECK(!parts.empty());
  out->top.clear();
  out->top.reserve(top_max + 1);
  out->inverse_temperature = parts.front().inverse_temperature;
  out->rows = 0;
  out->non_finite = false;
  double best = kMinusInfinity;
  for (const LogitSummary& part : parts) {
    CHECK(part.inverse_temperature == out->inverse_temperature);
    out->rows += part.rows;
    out->non_finite |= part.non_finite;
    best = std::max(best, part.log_sum_exp);
    for (const Candidate& candidate : part.top) offer(candidate, top_max, &out->top);
  }
  std::sort_heap(out->top.begin(), out->top.end(), comes_before);
  out->log_sum_exp = best;
  if (best == double{kMinusInfinity}) return;
  double sum = 0;
  for (const LogitSummary& part : parts) sum += std::exp(part.log_sum_exp - best);
  out->log_sum_exp = best + std::log(sum);
}

}  // namespace shoal::runtime

#include "runtime/sampling/logits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
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

// The largest logit of each group: the rows whose number has the same remainder. Groups lie side by
// side, so that the compiler takes many at a time.
constexpr size_t kGroups = 256;
struct GroupMaxima {
  std::array<float, kGroups> of;
  bool non_finite = false;  // a row was NaN or +infinity
};

GroupMaxima group_maxima(std::span<const float> logits) {
  GroupMaxima maxima;
  maxima.of.fill(kMinusInfinity);
  uint32_t bad = 0;
  for (size_t first = 0; first < logits.size(); first += kGroups) {
    const size_t count = std::min(kGroups, logits.size() - first);
    const float* row = logits.data() + first;
    for (size_t i = 0; i < count; ++i) {
      maxima.of[i] = maxima.of[i] < row[i] ? row[i] : maxima.of[i];
      bad |= row[i] < std::numeric_limits<float>::infinity() ? 0U : 1U;
    }
  }
  maxima.non_finite = bad != 0;
  return maxima;
}

// A logit that at least `count` rows reach: the count-th largest maximum of a group.
float reached_by(size_t count, const GroupMaxima& maxima) {
  if (count > kGroups) return kMinusInfinity;
  std::array<float, kGroups> sorted = maxima.of;
  std::nth_element(sorted.begin(), sorted.begin() + (count - 1), sorted.end(), std::greater<>());
  return sorted[count - 1];
}

// The best rows. Only those above a bound that hardly more than top_max reach are compared.
void take_top(std::span<const float> logits, const SummaryRequest& request,
              const GroupMaxima& maxima, std::vector<Candidate>* top) {
  top->clear();
  top->reserve(request.top_max + 1);
  if (request.top_max == 0) return;
  const float bound = reached_by(request.top_max, maxima);
  constexpr size_t kRun = 64;  // rows that are passed over together
  for (size_t first = 0; first < logits.size(); first += kRun) {
    const auto run = logits.subspan(first, std::min(kRun, logits.size() - first));
    uint32_t any = 0;
    for (const float logit : run) any |= logit < bound ? 0U : 1U;
    if (any == 0) continue;
    for (size_t i = 0; i < run.size(); ++i) {
      if (run[i] < bound) continue;
      offer({request.first_id + static_cast<TokenId>(first + i), run[i]}, request.top_max, top);
    }
  }
  std::sort_heap(top->begin(), top->end(), comes_before);
}

}  // namespace

void summarize(std::span<const float> logits, const SummaryRequest& request, LogitSummary* out) {
  const GroupMaxima maxima = group_maxima(logits);
  take_top(logits, request, maxima, &out->top);
  out->inverse_temperature = request.inverse_temperature;
  out->rows = logits.size();
  out->non_finite = maxima.non_finite;
  const float best = *std::max_element(maxima.of.begin(), maxima.of.end());

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

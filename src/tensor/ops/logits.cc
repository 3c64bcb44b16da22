#include "tensor/ops/logits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "tensor/cpu/kernels.h"

namespace shoal::tensor {
namespace {

constexpr float kNone = -std::numeric_limits<float>::infinity();

// a is chosen before b.
bool is_better(const Candidate& a, const Candidate& b) {
  if (a.logit != b.logit) return a.logit > b.logit;
  return a.token < b.token;
}

}  // namespace

LogitSummary summarize_logits(std::span<const float> logits) {
  LogitSummary summary;
  // Lanes on their own, so that compilers can use vectors.
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> maxima;
  maxima.fill(kNone);
  std::array<int, kLanes> bad{};  // neither NaN nor +infinity is below infinity
  const auto look = [&](size_t i, size_t lane) {
    maxima[lane] = logits[i] > maxima[lane] ? logits[i] : maxima[lane];
    bad[lane] |= logits[i] < std::numeric_limits<float>::infinity() ? 0 : 1;
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) look(i + lane, lane);
  }
  for (; i < logits.size(); ++i) look(i, 0);
  const float maximum = *std::max_element(maxima.begin(), maxima.end());
  summary.is_finite = std::find(bad.begin(), bad.end(), 1) == bad.end();
  if (!summary.is_finite) {
    summary.log_sum_exp = std::numeric_limits<float>::quiet_NaN();
  } else if (maximum == kNone) {
    summary.log_sum_exp = kNone;
  } else {
    const double sum = kernels_for(best_kernel_path())
                           .sum_exp(logits.data(), maximum, static_cast<int64_t>(logits.size()));
    summary.log_sum_exp = static_cast<float>(static_cast<double>(maximum) + std::log(sum));
  }
  return summary;
}

int64_t top_candidates(std::span<const float> logits, int32_t first_token,
                       std::span<Candidate> out) {
  if (out.empty()) return 0;
  size_t count = 0;  // of a heap whose front is the worst kept
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = std::isnan(logits[i]) ? kNone : logits[i];
    const Candidate candidate{first_token + static_cast<int32_t>(i), logit};
    if (count < out.size()) {
      out[count++] = candidate;
      std::push_heap(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count), is_better);
    } else if (logit > out.front().logit) {  // at equal logits the earlier token stays
      std::pop_heap(out.begin(), out.end(), is_better);
      out.back() = candidate;
      std::push_heap(out.begin(), out.end(), is_better);
    }
  }
  std::sort_heap(out.begin(), out.begin() + static_cast<std::ptrdiff_t>(count), is_better);
  return static_cast<int64_t>(count);
}

float log_add_exp(float a, float b) {
  const float high = std::max(a, b);
  const float low = std::min(a, b);
  if (low == kNone || std::isnan(a) || std::isnan(b))
    return std::isnan(a) ? a : (std::isnan(b) ? b : high);
  return high + std::log1p(std::exp(low - high));
}

}  // namespace shoal::tensor

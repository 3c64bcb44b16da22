#include "cli/bench/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace shoal::cli {
namespace {

// Of values in ascending order, at least one.
double nearest(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(std::llround(share * static_cast<double>(sorted.size() - 1)))];
}

std::vector<double> in_order(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values;
}

}  // namespace

Summary Summary::times(double factor) const {
  return {.count = count,
          .median = median * factor,
          .p10 = p10 * factor,
          .p90 = p90 * factor,
          .p99 = p99 * factor,
          .max = max * factor};
}

Json Summary::to_json() const {
  return {{"median", median}, {"p10", p10}, {"p90", p90}, {"p99", p99}, {"max", max}};
}

double Samples::quantile(double share) const {
  return values_.empty() ? 0 : nearest(in_order(values_), share);
}

double Samples::mean() const {
  if (values_.empty()) return 0;
  return std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(size());
}

Summary Samples::summary() const {
  if (values_.empty()) return {};
  const std::vector<double> sorted = in_order(values_);
  return {.count = sorted.size(),
          .median = nearest(sorted, 0.5),
          .p10 = nearest(sorted, 0.1),
          .p90 = nearest(sorted, 0.9),
          .p99 = nearest(sorted, 0.99),
          .max = sorted.back()};
}

}  // namespace shoal::cli

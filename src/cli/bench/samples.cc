#include "cli/bench/samples.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace shoal::cli {

double Samples::quantile(double share) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  return sorted[static_cast<size_t>(std::llround(share * static_cast<double>(sorted.size() - 1)))];
}

double Samples::mean() const {
  if (values_.empty()) return 0;
  return std::accumulate(values_.begin(), values_.end(), 0.0) / static_cast<double>(size());
}

Json Samples::to_json() const {
  return {{"median", median()},
          {"p10", quantile(0.1)},
          {"p90", quantile(0.9)},
          {"p99", quantile(0.99)}};
}

}  // namespace shoal::cli

// Samples: repeated measurements of one thing; Summary: the same as a few numbers.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "cli/support/json_output.h"

namespace shoal::cli {

// Median and spread, by the nearest sample. All zero without samples.
struct Summary {
  size_t count = 0;
  double median = 0;
  double p10 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;

  // Of every value multiplied; factor > 0.
  Summary times(double factor) const;
  // {"median", "p10", "p90", "p99", "max"}
  Json to_json() const;
};

class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  void reserve(size_t count) { values_.reserve(count); }
  size_t size() const { return values_.size(); }
  // share in [0, 1], by the nearest sample; 0 without samples.
  double quantile(double share) const;
  double median() const { return quantile(0.5); }
  double mean() const;
  Summary summary() const;
  Json to_json() const { return summary().to_json(); }

 private:
  std::vector<double> values_;
};

}  // namespace shoal::cli

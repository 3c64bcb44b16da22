// Samples: repeated measurements of one thing, summed up by median and spread.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "cli/support/json_output.h"

namespace shoal::cli {

class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  void reserve(size_t count) { values_.reserve(count); }
  size_t size() const { return values_.size(); }
  // share in [0, 1], by the nearest sample; 0 without samples.
  double quantile(double share) const;
  double median() const { return quantile(0.5); }
  double mean() const;
  // {"median", "p10", "p90", "p99"}
  Json to_json() const;

 private:
  std::vector<double> values_;
};

}  // namespace shoal::cli

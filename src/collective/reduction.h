// Reduction: what an all_reduce adds, in place.
//
// Thread rule: values.
#pragma once

#include <span>

#include "collective/shards.h"
#include "collective/sum.h"

namespace shoal::collective {

// data becomes the sum of all ranks' data.
struct Reduction {
  std::span<float> data;
  SumFunction sum = sum_in_rank_order;

  // The sum over `parts`, by rank, of one range.
  void sum_range(const Shards::Range& range, std::span<const float* const> parts) const {
    sum(range.of(data), parts);
  }
};

}  // namespace shoal::collective

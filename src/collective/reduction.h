// Reduction: what an all_reduce adds and where the result goes.
//
// Thread rule: values.
#pragma once

#include <span>

#include "collective/shards.h"
#include "collective/sum.h"

namespace shoal::collective {

// out = the sum of all ranks' `mine`, or out += that. `mine` and `out` have one size, and may be
// the same memory if nothing is added to.
struct Reduction {
  std::span<const float> mine;
  std::span<float> out;
  bool adds_to_out = false;
  SumFunction sum = sum_in_rank_order;

  // The sum over `parts`, by rank, of one range.
  void sum_range(const Shards::Range& range, std::span<const float* const> parts) const {
    const std::span<float> here = range.of(out);
    sum(here, {.parts = parts, .addend = adds_to_out ? here.data() : nullptr});
  }
};

}  // namespace shoal::collective

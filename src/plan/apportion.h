// apportion: divides whole grains among ranks by weight.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace shoal::plan {

// Counts that sum to `grains`, by largest remainder: no count is a whole grain away from its exact
// share, unless the floor of one grain for every rank demands it. Of equal remainders the lower
// rank wins. A greater weight never gets fewer grains than a smaller one.
// Needs weights > 0 and finite, and grains >= weights.size().
std::vector<uint64_t> apportion(uint64_t grains, std::span<const double> weights);

}  // namespace shoal::plan

#include "plan/apportion.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace shoal::plan {
namespace {

// The rank with the most grains; of equals the one with the smallest weight, so that counts stay
// in the order of the weights.
size_t richest(std::span<const uint64_t> counts, std::span<const double> weights) {
  size_t best = 0;
  for (size_t rank = 1; rank < counts.size(); ++rank) {
    if (counts[rank] > counts[best] ||
        (counts[rank] == counts[best] && weights[rank] <= weights[best])) {
      best = rank;
    }
  }
  return best;
}

}  // namespace

std::vector<uint64_t> apportion(uint64_t grains, std::span<const double> weights) {
  const size_t ranks = weights.size();
  CHECK(ranks > 0 && grains >= ranks);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<uint64_t> counts(ranks);
  std::vector<double> remainders(ranks);
  uint64_t given = 0;
  for (size_t rank = 0; rank < ranks; ++rank) {
    CHECK(weights[rank] > 0 && std::isfinite(weights[rank]));
    const double share = static_cast<double>(grains) * (weights[rank] / sum);
    counts[rank] = static_cast<uint64_t>(share);
    remainders[rank] = share - static_cast<double>(counts[rank]);
    given += counts[rank];
  }

  std::vector<size_t> order(ranks);
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return remainders[a] != remainders[b] ? remainders[a] > remainders[b] : a < b;
  });
  // Rounding may make the floors sum to one more than there is, only for absurd weights; the
  // largest gives it back.
  for (size_t i = 0; given < grains; ++i, ++given) ++counts[order[i % ranks]];
  for (; given > grains; --given) --counts[richest(counts, weights)];

  // Every rank works: one without a grain takes one from the rank with the most.
  for (uint64_t& count : counts) {
    if (count > 0) continue;
    --counts[richest(counts, weights)];
    count = 1;
  }
  return counts;
}

}  // namespace shoal::plan

#include "tensor/machine/ticks.h"

#include <algorithm>
#include <limits>

namespace shoal::tensor {

// The time is read between two looks at the counter; of a few tries the one with the least between.
TickPoint TickPoint::now() {
  constexpr int kTries = 5;
  TickPoint best{read_ticks(), SteadyClock::instance().now()};
  uint64_t least = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = read_ticks();
    const Nanoseconds time = SteadyClock::instance().now();
    const uint64_t after = read_ticks();
    if (after < before || after - before >= least) continue;
    least = after - before;
    best = {before + least / 2, time};
  }
  return best;
}

TickScale::TickScale(const TickPoint& earlier, const TickPoint& later) : later_(later) {
  if (later.ticks <= earlier.ticks || later.time <= earlier.time) return;
  seconds_per_tick_ = std::chrono::duration<double>(later.time - earlier.time).count() /
                      static_cast<double>(later.ticks - earlier.ticks);
}

Nanoseconds TickScale::time_of(uint64_t ticks) const {
  const auto ahead = static_cast<double>(static_cast<int64_t>(ticks - later_.ticks));
  constexpr auto kMost = static_cast<double>(kAwayMax.count());
  const double away = std::clamp(ahead * seconds_per_tick_ * 1e9, -kMost, kMost);
  return later_.time + Nanoseconds(static_cast<int64_t>(away));
}

}  // namespace shoal::tensor

// Ticks: the processor's time counter, and how its ticks become seconds and points of time.
//
// Reading it costs some ten nanoseconds and no system call. It counts at a constant rate, the same
// on all cores, on every x86-64 of the last decade and on every 64-bit Arm. A virtual machine that
// is moved or resumed may see it jump, even back: what is computed from it stays bounded.
// Thread rule: pure functions and values.
#pragma once

#include <cstdint>

#include "base/clock.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace shoal::tensor {

#if defined(__x86_64__)
inline uint64_t read_ticks() { return __rdtsc(); }
#elif defined(__aarch64__)
inline uint64_t read_ticks() {
  uint64_t ticks = 0;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
}
#else
inline uint64_t read_ticks() {
  return static_cast<uint64_t>(SteadyClock::instance().now().count());
}
#endif

// One moment on both clocks.
struct TickPoint {
  uint64_t ticks = 0;
  Nanoseconds time{0};  // SteadyClock

  static TickPoint now();
};

// The rate between two moments, which should lie milliseconds apart or more. Where the counter has
// not gone on between them it is unknown, and all times come out as none.
class TickScale {
 public:
  TickScale(const TickPoint& earlier, const TickPoint& later);

  double seconds(uint64_t ticks) const { return static_cast<double>(ticks) * seconds_per_tick_; }
  // The moment at which the counter stood there, at most kAwayMax from the later of the two.
  static constexpr Nanoseconds kAwayMax{int64_t{1} << 61U};
  Nanoseconds time_of(uint64_t ticks) const;

 private:
  TickPoint later_;
  double seconds_per_tick_ = 0;
};

}  // namespace shoal::tensor

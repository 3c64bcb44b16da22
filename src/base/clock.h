// Clock and Deadline: every wait in Shoal ends at a point of an injected monotonic clock.
//
// Thread rule: SteadyClock is stateless and safe everywhere; a ManualClock may be read by many
// threads while one advances it.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

namespace shoal {

using Nanoseconds = std::chrono::nanoseconds;

class Clock {
 public:
  virtual ~Clock() = default;
  // Time since an arbitrary start; never goes back.
  virtual Nanoseconds now() const = 0;
};

// The machine's CLOCK_MONOTONIC.
class SteadyClock final : public Clock {
 public:
  Nanoseconds now() const override;
  static const SteadyClock& instance();
};

// Virtual time for tests and the simulated fabric.
class ManualClock final : public Clock {
 public:
  Nanoseconds now() const override { return Nanoseconds(now_.load(std::memory_order_acquire)); }
  void advance(Nanoseconds by) { now_.fetch_add(by.count(), std::memory_order_acq_rel); }

 private:
  std::atomic<Nanoseconds::rep> now_{0};
};

// A point in time of one clock; the clock must outlive it.
class Deadline {
 public:
  static Deadline after(const Clock& clock, Nanoseconds from_now) {
    return {clock, clock.now() + from_now};
  }
  static Deadline after(Nanoseconds from_now) { return after(SteadyClock::instance(), from_now); }

  bool expired() const { return clock_->now() >= at_; }
  // Time left, never negative.
  Nanoseconds left() const {
    const Nanoseconds left = at_ - clock_->now();
    return left.count() > 0 ? left : Nanoseconds(0);
  }
  Nanoseconds at() const { return at_; }
  // This one, or so far from now if that is sooner.
  Deadline at_most(Nanoseconds from_now) const {
    return {*clock_, std::min(at_, clock_->now() + from_now)};
  }
  const Clock& clock() const { return *clock_; }

 private:
  Deadline(const Clock& clock, Nanoseconds at) : clock_(&clock), at_(at) {}
  const Clock* clock_;
  Nanoseconds at_;
};

}  // namespace shoal

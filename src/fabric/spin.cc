#include "fabric/spin.h"

#include <sched.h>

#include "base/os/cpus.h"
#include "base/spin_pause.h"

namespace shoal::fabric {
namespace {

// The clock is read once in so many rounds.
constexpr uint32_t kRoundsPerClockRead = 32;

}  // namespace

SpinPolicy choose_spin_policy(const SpinSituation& situation) {
  const int threads = situation.ranks_on_host * situation.threads_per_rank;
  SpinPolicy policy;
  if (threads > static_cast<int>(usable_cpus())) {
    policy = {.pause_for = std::chrono::microseconds(2),
              .yield_for = std::chrono::microseconds(300),
              .is_crowded = true};
  }
  policy.pauses = !situation.looks_at_device;
  return policy;
}

bool Spinner::spin_once() {
  const Nanoseconds budget = policy_.pause_for + policy_.yield_for;
  if (budget.count() == 0) return false;
  if (policy_.pauses) spin_pause();
  ++rounds_;
  if (rounds_ % kRoundsPerClockRead != 0 && !is_yielding_) return true;
  const Nanoseconds now = SteadyClock::instance().now();
  if (started_.count() == 0) {
    started_ = now;
    return true;
  }
  if (now - started_ < policy_.pause_for) return true;
  if (now - started_ >= budget) return false;
  is_yielding_ = true;
  sched_yield();
  return true;
}

}  // namespace shoal::fabric

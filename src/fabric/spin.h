// Spinner: how a waiting thread spends the first microseconds: pauses, then yields, then sleeps.
//
// With more runnable threads than cores a pure spin costs whole scheduler ticks: an oversubscribed
// group yields after a very short spin, and any other after a short one, since other programs run
// too.
// Thread rule: one thread per Spinner; SpinPolicy is data.
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace shoal::fabric {

struct SpinPolicy {
  Nanoseconds pause_for{std::chrono::microseconds(50)};   // spinning with pauses, at most
  Nanoseconds yield_for{std::chrono::microseconds(450)};  // then with yields, at most
  bool is_crowded = false;  // more spinning threads than cores: to wait for others is dear
  bool pauses = true;       // between two looks
};

// Never spins: for virtual time.
inline constexpr SpinPolicy kNoSpin{.pause_for = Nanoseconds(0), .yield_for = Nanoseconds(0)};

struct SpinSituation {
  int ranks_on_host = 1;
  int threads_per_rank = 1;
  // A look is a call of a device's library, which takes as long as a pause.
  bool looks_at_device = false;
};

// A policy for the processors that this process may use and that many spinning threads.
SpinPolicy choose_spin_policy(const SpinSituation& situation);

class Spinner {
 public:
  explicit Spinner(const SpinPolicy& policy) : policy_(policy) {}

  // Waits a moment; false when the budget is spent and the caller should sleep.
  bool spin_once();
  // Something happened: the budget starts anew.
  void reset() {
    rounds_ = 0;
    started_ = Nanoseconds(0);
    is_yielding_ = false;
  }

 private:
  SpinPolicy policy_;
  uint32_t rounds_ = 0;
  Nanoseconds started_{0};
  bool is_yielding_ = false;
};

}  // namespace shoal::fabric

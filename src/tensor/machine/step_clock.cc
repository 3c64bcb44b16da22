#include "tensor/machine/step_clock.h"

namespace shoal::tensor {

std::string_view phase_name(Phase phase) {
  static constexpr std::array<std::string_view, kPhases> kNames = {
      "idle",   "other",    "matmul",     "attention", "rows",
      "inputs", "sampling", "collective", "barrier"};
  return kNames[static_cast<size_t>(phase)];
}

PhaseTicks StepClock::take_totals() {
  enter(phase_);
  return std::exchange(totals_, PhaseTicks());
}

void StepClock::record(size_t stretches_max) {
  enter(phase_);
  recording_ = Recording();
  recording_.stretches.reserve(stretches_max);
  is_recording_ = true;
}

Recording StepClock::take_recording() {
  enter(phase_);
  is_recording_ = false;
  return std::exchange(recording_, Recording());
}

void StepClock::keep(uint64_t now) {
  if (phase_ == Phase::kIdle || now == since_) return;
  if (recording_.stretches.size() == recording_.stretches.capacity()) {
    ++recording_.dropped;
    return;
  }
  recording_.stretches.push_back({since_, now, phase_, stage_, layer_});
}

}  // namespace shoal::tensor

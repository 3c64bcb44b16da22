// StepClock: where one worker's time goes, by kind of work.
//
// A worker says with enter() what it does from then on; the time until the next enter() counts for
// that. This costs one look at the processor's counter, so the clocks run always. While a recording
// is on, every stretch is also kept with its begin and end, for a trace.
// Thread rule: one thread at a time: the worker's own. What belongs to other threads is read by
// them, inside a step. No method but record() allocates.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "tensor/machine/ticks.h"

namespace shoal::tensor {

enum class Phase : uint8_t {
  kIdle,   // between steps
  kOther,  // of a step, what is none of the following
  kMatmul,
  kAttention,   // with rope and the writing of keys and values
  kRows,        // embedding, and picking the rows of which logits are wanted
  kInputs,      // of the matrices: residual sums, norms, SwiGLU, into the format that they read
  kSampling,    // summaries of the logits, and the choice of a token
  kCollective,  // sums, broadcasts and gathers over the ranks, waiting for peers included
  kBarrier,     // waiting for the other workers of the rank
};
inline constexpr size_t kPhases = 9;

enum class Stage : uint8_t { kPrefill, kDecode };
inline constexpr size_t kStages = 2;

std::string_view phase_name(Phase phase);  // "matmul"

// Ticks [stage][phase].
using PhaseTicks = std::array<std::array<uint64_t, kPhases>, kStages>;

struct Stretch {
  static constexpr uint16_t kNoLayer = 0xFFFF;
  uint64_t begin = 0;  // ticks
  uint64_t end = 0;
  Phase phase = Phase::kIdle;
  Stage stage = Stage::kPrefill;
  uint16_t layer = kNoLayer;
};

struct Recording {
  std::vector<Stretch> stretches;  // in order, none overlaps another
  uint64_t dropped = 0;            // that found no room
};

class StepClock {
 public:
  // What was done until now, to go back to it.
  Phase enter(Phase next) { return enter_at(read_ticks(), next); }
  // The same at a given tick. A counter may show less than before, as after a move to another
  // processor or machine: no time has passed then, until it is ahead again.
  Phase enter_at(uint64_t ticks, Phase next) {
    const uint64_t now = ticks > since_ ? ticks : since_;
    totals_[static_cast<size_t>(stage_)][static_cast<size_t>(phase_)] += now - since_;
    if (is_recording_) keep(now);
    since_ = now;
    return std::exchange(phase_, next);
  }
  void set_stage(Stage stage) { stage_ = stage; }
  void set_layer(size_t layer) { layer_ = static_cast<uint16_t>(layer); }
  void leave_layers() { layer_ = Stretch::kNoLayer; }

  // What has been counted since the last call. The stretch under way is counted up to now.
  PhaseTicks take_totals();

  // From now on stretches are kept, as many as fit.
  void record(size_t stretches_max);
  Recording take_recording();

 private:
  void keep(uint64_t now);

  uint64_t since_ = read_ticks();
  Phase phase_ = Phase::kIdle;
  Stage stage_ = Stage::kPrefill;
  uint16_t layer_ = Stretch::kNoLayer;
  bool is_recording_ = false;
  PhaseTicks totals_{};
  Recording recording_;
};

// Enters a phase, and goes back to the one before at the end of the scope.
class PhaseScope {
 public:
  PhaseScope(StepClock& clock, Phase phase) : clock_(clock), before_(clock.enter(phase)) {}
  ~PhaseScope() { clock_.enter(before_); }
  PhaseScope(const PhaseScope&) = delete;
  PhaseScope& operator=(const PhaseScope&) = delete;

 private:
  StepClock& clock_;
  Phase before_;
};

}  // namespace shoal::tensor

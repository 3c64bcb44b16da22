// Measurements: where the time of a group's ranks went, as rank 0 collects it.
//
// Two kinds: sums over all of a rank's workers, always counted (RankTimes), and a recording of what
// each worker did when (RankTrace), for as long as it is on. The bytes in which they travel are
// foreign and bounded: docs/step_protocol.md.
// Thread rule: values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "tensor/machine/step_clock.h"

namespace shoal::runtime {

// Seconds of all workers of one rank together, since they were last taken.
struct RankTimes {
  uint32_t workers = 0;
  std::array<std::array<double, tensor::kPhases>, tensor::kStages> seconds{};

  double of(tensor::Stage stage, tensor::Phase phase) const {
    return seconds[static_cast<size_t>(stage)][static_cast<size_t>(phase)];
  }
};

// What one worker did without a break; times are on rank 0's SteadyClock.
struct TraceSpan {
  uint32_t worker = 0;
  tensor::Phase phase = tensor::Phase::kOther;
  tensor::Stage stage = tensor::Stage::kPrefill;
  uint16_t layer = tensor::Stretch::kNoLayer;
  Nanoseconds begin{0};
  Nanoseconds end{0};
};

struct RankTrace {
  std::vector<TraceSpan> spans;  // by worker, then in order; none of a worker overlaps another
  uint32_t workers = 0;
  uint64_t dropped = 0;  // spans that found no room
  // How far the rank's clock was ahead of rank 0's; taken off the times. 0 on the same machine.
  Nanoseconds clock_offset{0};
};

// Limits.
inline constexpr size_t kTraceSpansMax = size_t{1} << 16U;  // of one worker
inline constexpr Nanoseconds kTimeMax{int64_t{1} << 61U};   // that a clock can show: 73 years
inline constexpr double kSecondsMax =                       // of one worker in one phase
    std::chrono::duration<double>(kTimeMax).count();
inline constexpr size_t kTimesBytes = 8 + sizeof(RankTimes::seconds);
inline constexpr size_t kTraceHeadBytes = 40;
inline constexpr size_t kTraceSpanBytes = 24;
inline constexpr size_t kTraceBytesMax = size_t{512} << 20U;  // of all ranks' spans together

// The sizes are as above; decoding gives kGroup when the bytes are none of ours.
std::vector<std::byte> encode_times(const RankTimes& times);
Result<RankTimes> decode_times(std::span<const std::byte> bytes);

struct TraceHead {
  uint32_t workers = 0;
  uint64_t spans = 0;
  uint64_t dropped = 0;
  uint64_t machine = 0;  // the same number: the same clock; 0: unknown
};
std::vector<std::byte> encode_trace_head(const TraceHead& head);
Result<TraceHead> decode_trace_head(std::span<const std::byte> bytes);

std::vector<std::byte> encode_spans(std::span<const TraceSpan> spans);
// As many as the bytes hold, which must agree with the head.
Result<std::vector<TraceSpan>> decode_spans(std::span<const std::byte> bytes,
                                            const TraceHead& head);

// One question to another rank what its clock shows, between two looks at the own one.
struct ClockExchange {
  Nanoseconds asked{0};
  Nanoseconds theirs{0};
  Nanoseconds answered{0};
};
// How far their clock is ahead: from the quickest exchange, as if question and answer took equally
// long.
Nanoseconds clock_offset(std::span<const ClockExchange> exchanges);

// Tells machines, or rather starts of their systems, apart. 0 where that cannot be told.
uint64_t machine_id();

}  // namespace shoal::runtime

// Measurements of a group's links: latency, all-reduce and bandwidth, as plain numbers.
//
// All ranks of the group call the same function with the same options; each gets its own figures.
// Thread rule: as Group.
#pragma once

#include <cstddef>

#include "base/status.h"
#include "collective/group.h"

namespace shoal::collective {

struct MeasureOptions {
  size_t bytes = 8;
  int rounds = 1000;
  int warm_up_rounds = 100;
  Nanoseconds round_deadline{std::chrono::seconds(10)};
};

struct Timing {
  size_t bytes = 0;
  int rounds = 0;
  double min_us = 0;
  double p50_us = 0;
  double p99_us = 0;
  // Payload over the median time, 10^9 bytes per second.
  double gigabytes_per_second = 0;
};

// Half of a round trip of one message between ranks 0 and 1; the others only take part in the
// barriers around it. Rank 0's figures count.
Result<Timing> measure_ping_pong(Group& group, const MeasureOptions& options);
// One all_reduce of so many bytes (a multiple of 4).
Result<Timing> measure_all_reduce(Group& group, const MeasureOptions& options);
// One message from rank 0 to rank 1, until rank 0 has its answer of 0 bytes.
Result<Timing> measure_transfer(Group& group, const MeasureOptions& options);

}  // namespace shoal::collective

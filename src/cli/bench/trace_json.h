// The trace of some steps in the format of Chrome's trace viewer, which Perfetto reads, too.
//
// Format: "Trace Event Format" of the Chromium project: an object with a list traceEvents; metadata
// events (ph "M") name processes and threads, complete events (ph "X") have ts and dur in
// microseconds. A rank is a process, a worker a thread; the first span begins at 0.
// Thread rule: pure functions.
#pragma once

#include <span>
#include <string>

#include "cli/support/json_output.h"
#include "runtime/measure/measurements.h"

namespace shoal::cli {

struct TraceSummary {
  size_t spans = 0;
  uint64_t dropped = 0;
  double seconds = 0;  // from the first begin to the last end
};
TraceSummary summarize(std::span<const runtime::RankTrace> ranks);

// node_names by rank.
Json trace_json(std::span<const runtime::RankTrace> ranks, std::span<const std::string> node_names);

}  // namespace shoal::cli

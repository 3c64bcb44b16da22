// Collecting measurements over a group: every rank calls the same function, rank 0 gets the result.
//
// Thread rule: one thread, outside a step. Errors: kGroup.
#pragma once

#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "collective/group.h"
#include "runtime/measure/measurements.h"
#include "tensor/threads.h"

namespace shoal::runtime {

// What a rank's workers have counted since the last call, which starts anew.
RankTimes take_times(tensor::WorkerPool& pool);

// On rank 0 by rank, elsewhere empty.
Result<std::vector<RankTimes>> collect_times(tensor::WorkerPool& pool, collective::Group& group,
                                             const Deadline& deadline);

// From now on every worker of this rank keeps what it does.
void start_trace(tensor::WorkerPool& pool);

// Ends that. On rank 0 by rank, elsewhere empty.
Result<std::vector<RankTrace>> collect_trace(tensor::WorkerPool& pool, collective::Group& group,
                                             const Deadline& deadline);

}  // namespace shoal::runtime

// run_follower: the life of every rank but 0.
#pragma once

#include "base/status.h"
#include "collective/group.h"
#include "model/model.h"
#include "plan/plan.h"
#include "runtime/engine_options.h"

namespace shoal::runtime {

// Loads this rank's part, then takes part in rank 0's steps until it is told to end (ok) or the
// group fails (kGroup, naming the peer). Waits without using the CPU between steps.
// Thread rule: the calling thread is a compute thread of the rank.
Status run_follower(const model::Model& model, const plan::Plan& plan, collective::Group& group,
                    const EngineOptions& options);

}  // namespace shoal::runtime

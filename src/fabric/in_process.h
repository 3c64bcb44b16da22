// make_in_process_group: all ranks of a group in one process, over real links, for threads.
//
// For tests and measurements; the links are the same as between processes.
// Thread rule: call from one thread; then each fabric belongs to one thread.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "fabric/fabric.h"
#include "fabric/group_setup.h"
#include "fabric/tcp/address.h"
#include "fabric/ucx/ucx_context.h"
#include "fabric/verbs/verbs_rail.h"

namespace shoal::fabric {

struct InProcessOptions {
  int size = 2;
  LinkKind link = LinkKind::kShm;
  FabricOptions fabric;
  TcpTuning tuning{};
  HostPort listen{.host = "127.0.0.1", .port = 0};  // of rank 0, but for shm
  VerbsProvider verbs{};                            // for verbs; without a table: the system's
  UcxProvider ucx{};                                // for ucx; the same
};

// By rank.
Result<std::vector<std::unique_ptr<Fabric>>> make_in_process_group(const InProcessOptions& options,
                                                                   const Deadline& deadline);

}  // namespace shoal::fabric

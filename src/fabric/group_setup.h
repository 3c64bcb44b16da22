// GroupSetup: what every rank must know to join a group, and FabricBuilder, which puts the joined
// links together. For makers.
//
// Thread rule: one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "fabric/fabric.h"
#include "fabric/link/handshake.h"
#include "fabric/link/liveness.h"
#include "fabric/shm/mapped_memory.h"
#include "fabric/shm/shm_segment.h"
#include "fabric/ucx/ucx_context.h"
#include "fabric/verbs/verbs_connect.h"
#include "fabric/verbs/verbs_rail.h"

namespace shoal::fabric {

struct GroupSetup {
  int rank = 0;
  int size = 1;
  uint64_t epoch = 0;
  LinkSecret secret{};
  std::string node_name;  // of this rank
  FabricOptions fabric;
};

// kRequest when a size, rank or slot class is impossible.
Status check_group_setup(const GroupSetup& setup);

// The configuration of one handshake of this rank.
HandshakeConfig make_handshake_config(const GroupSetup& setup, HandshakeRole role,
                                      LinkPurpose purpose);

class FabricBuilder {
 public:
  // node_names by rank.
  FabricBuilder(const GroupSetup& setup, std::vector<std::string> node_names);

  // The memory of all ranks, before any link over shared memory is added; kNode when the machine
  // refuses it. unmap_memory() goes back on it, before any link, too.
  Status map_memory(int fd);
  void unmap_memory() { parts_.mapped.reset(); }
  Status add_shm(int peer, std::unique_ptr<ShmSegment> segment, UniqueFd liveness);
  Status add_tcp(int peer, UniqueFd data, UniqueFd liveness);
  // A first rail to the peer, which `data` brings up. All ranks add their peers in an order in
  // which none waits for another in a circle: by rising rank.
  Status add_verbs(int peer, const VerbsProvider& provider, UniqueFd data, UniqueFd liveness,
                   const Deadline& deadline);
  // Once all peers have a first rail: rails over further cables, and the endpoints.
  Status finish_verbs_links(const VerbsProvider& provider, const Deadline& deadline);
  // Queue pairs as add_verbs() makes them, with UCX, whose context the fabric then has.
  Status add_ucx(int peer, const UcxProvider& provider, UniqueFd data, UniqueFd liveness,
                 const Deadline& deadline);
  // Every peer must have been added. Starts the liveness monitor.
  Result<std::unique_ptr<Fabric>> finish(const SpinSituation& situation);

 private:
  EndpointInfo info_for(int peer, std::string link) const;
  void add_liveness(int peer, std::string link, UniqueFd liveness);

  GroupSetup setup_;
  Fabric::Parts parts_;
  std::vector<LivenessPeer> liveness_;
  std::vector<VerbsConnection> verbs_;
};

}  // namespace shoal::fabric

// The shared-memory maker: one memfd and one liveness socket per pair of ranks, one memfd for all.
//
// Whoever forms the group makes all links and hands each rank its ends (over UNIX sockets to other
// processes); each rank then connects: a handshake on every liveness socket, the memory checked.
// The memory of all is used when every rank has mapped it. Each says so in its handshakes, with
// every other, so all agree; where one of them cannot, all do without.
// Thread rule: one thread per rank.
#pragma once

#include <memory>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "fabric/fabric.h"
#include "fabric/group_setup.h"

namespace shoal::fabric {

// One rank's end of the link to one peer.
struct ShmLinkEnd {
  int peer = 0;
  UniqueFd liveness;
  UniqueFd memory;
};

// What one rank gets of the group.
struct ShmRankEnds {
  UniqueFd mapped;                // the memory of all ranks; none when the machine has no room
  std::vector<ShmLinkEnd> links;  // to each peer, ascending
};

// Room for the descriptors of all links of a group; kNode when the machine does not allow so many.
Status reserve_shm_links(int size);

// All links of a group, by rank.
Result<std::vector<ShmRankEnds>> make_shm_links(int size, const SlotClass& slots);

// node_names by rank. Every rank of the group must call this within the deadline.
Result<std::unique_ptr<Fabric>> connect_shm_group(const GroupSetup& setup,
                                                  const std::vector<std::string>& node_names,
                                                  ShmRankEnds ends, const Deadline& deadline);

}  // namespace shoal::fabric

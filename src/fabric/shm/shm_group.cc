#include "fabric/shm/shm_group.h"

#include <fcntl.h>

#include <cerrno>

#include "base/log.h"
#include "base/os/descriptor_limit.h"
#include "fabric/link/stream.h"
#include "fabric/shm/mapped_memory.h"

namespace shoal::fabric {
namespace {

Result<UniqueFd> duplicate(const UniqueFd& fd) {
  UniqueFd copy(fcntl(fd.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.is_valid()) return Status::from_errno("duplicating a descriptor", errno);
  return copy;
}

}  // namespace

Status reserve_shm_links(int size) {
  const auto ranks = static_cast<size_t>(size);
  const size_t links = ranks * (ranks - 1) / 2;
  // Two sockets and two descriptors of the memory each; the memory of all, for each rank.
  return reserve_descriptors(4 * links + ranks)
      .with_context("the links of " + std::to_string(size) + " ranks");
}

Result<std::vector<ShmRankEnds>> make_shm_links(int size, const SlotClass& slots) {
  RETURN_IF_ERROR(reserve_shm_links(size));
  std::vector<ShmRankEnds> ends(static_cast<size_t>(size));
  ASSIGN_OR_RETURN(const UniqueFd mapped, MappedMemory::create(mapped_layout(slots, size)));
  for (ShmRankEnds& one : ends) {
    ASSIGN_OR_RETURN(one.mapped, duplicate(mapped));
  }
  for (int low = 0; low < size; ++low) {
    for (int high = low + 1; high < size; ++high) {
      ASSIGN_OR_RETURN(SocketPair sockets, make_socket_pair());
      ASSIGN_OR_RETURN(UniqueFd memory, ShmSegment::create(slots));
      ASSIGN_OR_RETURN(UniqueFd copy, duplicate(memory));
      ends[static_cast<size_t>(low)].links.push_back(
          {high, std::move(sockets.first), std::move(memory)});
      ends[static_cast<size_t>(high)].links.push_back(
          {low, std::move(sockets.second), std::move(copy)});
    }
  }
  return ends;
}

// Every rank goes through its peers in ascending order, the higher rank of a pair begins: whoever
// waits, waits for a pair that is smaller in the order of (lower rank, higher rank), so nobody
// waits in a circle.
Result<std::unique_ptr<Fabric>> connect_shm_group(const GroupSetup& setup,
                                                  std::vector<std::string> node_names,
                                                  ShmRankEnds ends, const Deadline& deadline) {
  RETURN_IF_ERROR(check_group_setup(setup));
  CHECK(ends.links.size() + 1 == static_cast<size_t>(setup.size));
  std::vector<std::string> names = node_names;
  FabricBuilder builder(setup, std::move(node_names));
  RETURN_IF_ERROR(builder.map_memory(ends.mapped.get()));
  for (ShmLinkEnd& end : ends.links) {
    const auto role = end.peer < setup.rank ? HandshakeRole::kInitiator : HandshakeRole::kResponder;
    HandshakeConfig config = make_handshake_config(setup, role, LinkPurpose::kLiveness);
    config.expected_rank = end.peer;
    const std::string who =
        "rank " + std::to_string(end.peer) + " (" + names[static_cast<size_t>(end.peer)] + ")";
    const Result<NodeIdentity> peer =
        run_handshake(end.liveness.get(), std::move(config), who, deadline);
    if (!peer.is_ok()) {
      LOG(error, "joining the group over shm: {}", peer.status().message());
      return peer.status().with_context("joining the group over shm");
    }
    ASSIGN_OR_RETURN(auto segment, ShmSegment::map(end.memory.get(), setup.fabric.slots));
    RETURN_IF_ERROR(builder.add_shm(end.peer, std::move(segment), std::move(end.liveness)));
  }
  return builder.finish(
      {.ranks_on_host = setup.size, .threads_per_rank = setup.fabric.threads_per_rank});
}

}  // namespace shoal::fabric

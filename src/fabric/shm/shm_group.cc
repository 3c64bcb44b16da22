#include "fabric/shm/shm_group.h"

#include <fcntl.h>

#include <algorithm>
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

std::string rank_text(int rank, const std::vector<std::string>& node_names) {
  return "rank " + std::to_string(rank) + " (" + node_names[static_cast<size_t>(rank)] + ")";
}

void log_lack_of_memory(std::string_view why) {
  LOG(warn, "no memory that all ranks map, all-reduce goes through slots: {}", why);
}

// Whether this rank has mapped the memory of all ranks. A machine without room for it is no
// failure; memory that is not what it should be is.
Result<bool> map_memory(FabricBuilder& builder, const UniqueFd& fd) {
  if (!fd.is_valid()) return false;
  const Status status = builder.map_memory(fd.get());
  if (status.is_ok()) return true;
  if (status.code() != StatusCode::kNode) return status;
  log_lack_of_memory(status.message());
  return false;
}

// Every rank goes through its peers in ascending order, the higher rank of a pair begins: whoever
// waits, waits for a pair that is smaller in the order of (lower rank, higher rank), so nobody
// waits in a circle. By peer, as in `links`.
Result<std::vector<NodeIdentity>> shake_hands(const GroupSetup& setup, bool maps_memory,
                                              const std::vector<std::string>& node_names,
                                              const std::vector<ShmLinkEnd>& links,
                                              const Deadline& deadline) {
  std::vector<NodeIdentity> peers;
  for (const ShmLinkEnd& end : links) {
    const auto role = end.peer < setup.rank ? HandshakeRole::kInitiator : HandshakeRole::kResponder;
    HandshakeConfig config = make_handshake_config(setup, role, LinkPurpose::kLiveness);
    config.self.maps_memory = maps_memory;
    config.expected_rank = end.peer;
    Result<NodeIdentity> peer = run_handshake(end.liveness.get(), std::move(config),
                                              rank_text(end.peer, node_names), deadline);
    if (!peer.is_ok()) {
      LOG(error, "joining the group over shm: {}", peer.status().message());
      return peer.status().with_context("joining the group over shm");
    }
    peers.push_back(std::move(*peer));
  }
  return peers;
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
  const Result<UniqueFd> mapped = MappedMemory::create(mapped_layout(slots, size));
  if (!mapped.is_ok()) log_lack_of_memory(mapped.status().message());
  for (ShmRankEnds& one : ends) {
    if (!mapped.is_ok()) break;
    ASSIGN_OR_RETURN(one.mapped, duplicate(*mapped));
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

Result<std::unique_ptr<Fabric>> connect_shm_group(const GroupSetup& setup,
                                                  const std::vector<std::string>& node_names,
                                                  ShmRankEnds ends, const Deadline& deadline) {
  RETURN_IF_ERROR(check_group_setup(setup));
  CHECK(ends.links.size() + 1 == static_cast<size_t>(setup.size));
  FabricBuilder builder(setup, node_names);
  ASSIGN_OR_RETURN(const bool maps_memory, map_memory(builder, ends.mapped));
  ASSIGN_OR_RETURN(const auto peers,
                   shake_hands(setup, maps_memory, node_names, ends.links, deadline));
  const auto without = std::ranges::find(peers, false, &NodeIdentity::maps_memory);
  if (maps_memory && without != peers.end()) {
    log_lack_of_memory(rank_text(static_cast<int>(without->rank), node_names) + " has not got it");
    builder.unmap_memory();
  }
  for (ShmLinkEnd& end : ends.links) {
    ASSIGN_OR_RETURN(auto segment, ShmSegment::map(end.memory.get(), setup.fabric.slots));
    RETURN_IF_ERROR(builder.add_shm(end.peer, std::move(segment), std::move(end.liveness)));
  }
  return builder.finish(
      {.ranks_on_host = setup.size, .threads_per_rank = setup.fabric.threads_per_rank});
}

}  // namespace shoal::fabric

#include "fabric/group_setup.h"

#include <unistd.h>

#include <algorithm>

#include "fabric/shm/shm_endpoint.h"
#include "fabric/tcp/tcp_endpoint.h"
#include "fabric/ucx/ucx_connect.h"
#include "fabric/verbs/verbs_connect.h"

namespace shoal::fabric {

Status check_group_setup(const GroupSetup& setup) {
  if (setup.size < 1 || setup.size > kGroupSizeMax) {
    return Status::request("a group of " + std::to_string(setup.size) + " ranks: it must be 1 to " +
                           std::to_string(kGroupSizeMax));
  }
  if (setup.rank < 0 || setup.rank >= setup.size) {
    return Status::request("rank " + std::to_string(setup.rank) + " in a group of " +
                           std::to_string(setup.size));
  }
  return check_slot_class(setup.fabric.slots);
}

HandshakeConfig make_handshake_config(const GroupSetup& setup, HandshakeRole role,
                                      LinkPurpose purpose) {
  HandshakeConfig config;
  config.role = role;
  config.secret = setup.secret;
  config.build = setup.fabric.program.build;
  config.version.format = setup.fabric.program.format;
  config.self.epoch = setup.epoch;
  config.self.rank = static_cast<uint32_t>(setup.rank);
  config.self.size = static_cast<uint32_t>(setup.size);
  config.self.purpose = purpose;
  config.self.process_id = static_cast<uint64_t>(getpid());
  config.self.slots = setup.fabric.slots;
  config.self.boot_id = boot_id();
  config.self.node_name = setup.node_name;
  return config;
}

FabricBuilder::FabricBuilder(const GroupSetup& setup, std::vector<std::string> node_names)
    : setup_(setup) {
  CHECK(node_names.size() == static_cast<size_t>(setup.size));
  parts_.rank = setup.rank;
  parts_.epoch = setup.epoch;
  parts_.node_names = std::move(node_names);
  parts_.health = std::make_unique<GroupHealth>(setup.rank, parts_.node_names);
  parts_.endpoints.resize(static_cast<size_t>(setup.size));
  parts_.clock = &SteadyClock::instance();
}

EndpointInfo FabricBuilder::info_for(int peer, std::string link) const {
  return {.link = std::move(link),
          .self_rank = setup_.rank,
          .peer_rank = peer,
          .peer_name = parts_.node_names[static_cast<size_t>(peer)],
          .epoch = setup_.epoch,
          .slots = setup_.fabric.slots,
          .mapped = parts_.mapped.get()};
}

Status FabricBuilder::map_memory(int fd) {
  const MappedLayout layout = mapped_layout(setup_.fabric.slots, setup_.size);
  const MappedMemory::Identity self{.rank = setup_.rank, .epoch = setup_.epoch};
  ASSIGN_OR_RETURN(parts_.mapped, MappedMemory::map(fd, layout, self, *parts_.health));
  return Status::ok();
}

void FabricBuilder::add_liveness(int peer, std::string link, UniqueFd liveness) {
  liveness_.push_back({.rank = peer, .link = std::move(link), .socket = std::move(liveness)});
}

Status FabricBuilder::add_shm(int peer, std::unique_ptr<ShmSegment> segment, UniqueFd liveness) {
  parts_.endpoints[static_cast<size_t>(peer)] =
      std::make_unique<ShmEndpoint>(info_for(peer, "shm"), std::move(segment), *parts_.health);
  add_liveness(peer, "shm", std::move(liveness));
  return Status::ok();
}

Status FabricBuilder::add_tcp(int peer, UniqueFd data, UniqueFd liveness) {
  ASSIGN_OR_RETURN(parts_.endpoints[static_cast<size_t>(peer)],
                   TcpEndpoint::create(info_for(peer, "tcp"), std::move(data), *parts_.health));
  add_liveness(peer, "tcp", std::move(liveness));
  return Status::ok();
}

Status FabricBuilder::add_verbs(int peer, const VerbsProvider& provider, UniqueFd data,
                                UniqueFd liveness, const Deadline& deadline) {
  ASSIGN_OR_RETURN(
      auto connection,
      connect_verbs(provider, std::move(data), info_for(peer, "verbs"), *parts_.health, deadline));
  verbs_.push_back(std::move(connection));
  add_liveness(peer, "verbs", std::move(liveness));
  return Status::ok();
}

Status FabricBuilder::finish_verbs_links(const VerbsProvider& provider, const Deadline& deadline) {
  const bool is_searched = std::ranges::any_of(
      verbs_, [](const VerbsConnection& link) { return may_have_further_rails(link); });
  RailSearch search = is_searched ? make_rail_search(provider) : RailSearch{.provider = provider};
  // Ranks search one after the other, and who is done first expects the others' beats.
  search.time_left = kRailSearchMax / setup_.size;
  for (VerbsConnection& connection : verbs_) {
    RETURN_IF_ERROR(add_further_rails(search, connection, deadline));
    const auto peer = static_cast<size_t>(connection.info.peer_rank);
    ASSIGN_OR_RETURN(parts_.endpoints[peer], finish_verbs(std::move(connection), *parts_.health));
  }
  return Status::ok();
}

Status FabricBuilder::add_ucx(int peer, const UcxProvider& provider, UniqueFd data,
                              UniqueFd liveness, const Deadline& deadline) {
  if (parts_.ucx == nullptr) {
    Result<std::unique_ptr<UcxContext>> context = UcxContext::open(provider);
    if (!context.is_ok()) {
      refuse_ucx(data.get(), context.status(), deadline);
      return context.status();
    }
    parts_.ucx = std::move(*context);
  }
  ASSIGN_OR_RETURN(
      parts_.endpoints[static_cast<size_t>(peer)],
      connect_ucx(*parts_.ucx, data.get(), info_for(peer, "ucx"), *parts_.health, deadline));
  add_liveness(peer, "ucx", std::move(liveness));
  return Status::ok();
}

Result<std::unique_ptr<Fabric>> FabricBuilder::finish(const SpinSituation& situation) {
  for (int peer = 0; peer < setup_.size; ++peer) {
    CHECK(peer == setup_.rank || parts_.endpoints[static_cast<size_t>(peer)] != nullptr);
  }
  ASSIGN_OR_RETURN(parts_.monitor, LivenessMonitor::start(*parts_.health, std::move(liveness_),
                                                          setup_.fabric.liveness));
  SpinSituation spinning = situation;
  spinning.looks_at_device = !verbs_.empty();
  parts_.spin = choose_spin_policy(spinning);
  return std::make_unique<Fabric>(std::move(parts_));
}

}  // namespace shoal::fabric

#include "fabric/in_process.h"

#include <thread>

#include "base/os/thread.h"
#include "fabric/shm/shm_group.h"
#include "fabric/tcp/tcp_group.h"

namespace shoal::fabric {
namespace {

using Fabrics = std::vector<std::unique_ptr<Fabric>>;

std::vector<GroupSetup> make_setups(const InProcessOptions& options, const GroupSetup& common) {
  std::vector<GroupSetup> setups(static_cast<size_t>(options.size), common);
  for (int rank = 0; rank < options.size; ++rank) {
    setups[static_cast<size_t>(rank)].rank = rank;
    setups[static_cast<size_t>(rank)].node_name = "node-" + std::to_string(rank);
  }
  return setups;
}

// Runs connect(rank) for every rank at once.
template <typename Connect>
Result<Fabrics> connect_all(size_t size, const Connect& connect) {
  Fabrics fabrics(size);
  std::vector<Status> statuses(size);
  Status start;
  std::vector<std::thread> threads;
  threads.reserve(size);
  for (size_t rank = 0; rank < size; ++rank) {
    Result<std::thread> thread = start_thread([&, rank] {
      Result<std::unique_ptr<Fabric>> fabric = connect(rank);
      if (fabric.is_ok()) fabrics[rank] = std::move(*fabric);
      statuses[rank] = fabric.status();
    });
    // The others then end at their deadline.
    if (!thread.is_ok()) {
      start = thread.status();
      break;
    }
    threads.push_back(std::move(*thread));
  }
  for (std::thread& thread : threads) thread.join();
  RETURN_IF_ERROR(start);
  for (const Status& status : statuses) RETURN_IF_ERROR(status);
  return fabrics;
}

Result<Fabrics> make_shm(const InProcessOptions& options, const GroupSetup& common,
                         const Deadline& deadline) {
  ASSIGN_OR_RETURN(auto ends, make_shm_links(options.size, options.fabric.slots));
  const std::vector<GroupSetup> setups = make_setups(options, common);
  std::vector<std::string> names;
  names.reserve(setups.size());
  for (const GroupSetup& setup : setups) names.push_back(setup.node_name);
  return connect_all(setups.size(), [&](size_t rank) {
    return connect_shm_group(setups[rank], names, std::move(ends[rank]), deadline);
  });
}

Result<Fabrics> make_tcp(const InProcessOptions& options, const GroupSetup& common,
                         const Deadline& deadline) {
  ASSIGN_OR_RETURN(UniqueFd listener, listen_tcp(options.listen));
  ASSIGN_OR_RETURN(const SocketAddress address, local_address(listener.get()));
  VerbsProvider verbs = options.verbs;
  if (options.link == LinkKind::kVerbs && verbs.table == nullptr) {
    ASSIGN_OR_RETURN(verbs.table, load_verbs());
  }
  UcxProvider ucx = options.ucx;
  if (options.link == LinkKind::kUcx && ucx.table == nullptr) {
    ASSIGN_OR_RETURN(ucx.table, load_ucx());
  }
  const std::vector<GroupSetup> setups = make_setups(options, common);
  return connect_all(setups.size(), [&](size_t rank) {
    TcpGroupOptions tcp;
    tcp.setup = setups[rank];
    tcp.tuning = options.tuning;
    tcp.ranks_on_host = options.size;
    tcp.verbs = verbs;
    tcp.ucx = ucx;
    tcp.rank0 = HostPort{.host = options.listen.host, .port = address.port()};
    if (rank == 0) tcp.listener = std::move(listener);
    return connect_tcp_group(std::move(tcp), deadline);
  });
}

}  // namespace

Result<Fabrics> make_in_process_group(const InProcessOptions& options, const Deadline& deadline) {
  GroupSetup common;
  common.size = options.size;
  common.fabric = options.fabric;
  RETURN_IF_ERROR(check_group_setup(common));
  ASSIGN_OR_RETURN(common.epoch, make_epoch());
  ASSIGN_OR_RETURN(common.secret, make_secret());
  return options.link == LinkKind::kShm ? make_shm(options, common, deadline)
                                        : make_tcp(options, common, deadline);
}

}  // namespace shoal::fabric

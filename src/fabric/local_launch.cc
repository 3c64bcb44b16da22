#include "fabric/local_launch.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>

#include "base/log.h"
#include "base/os/child_start.h"
#include "fabric/link/join_info.h"
#include "fabric/link/stream.h"
#include "fabric/shm/shm_group.h"
#include "fabric/tcp/tcp_group.h"

namespace shoal::fabric {
namespace {

constexpr Nanoseconds kReapPause = std::chrono::milliseconds(2);
// How long a process may take to end after its sockets have closed.
constexpr Nanoseconds kEndPatience = std::chrono::milliseconds(500);

// How a process ended, in words.
std::string end_text(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    return "was ended by signal " + std::to_string(WTERMSIG(wait_status));
  }
  return "ended with status " + std::to_string(WEXITSTATUS(wait_status));
}

// The start of one node; its pid.
Result<pid_t> start_node(const std::vector<std::string>& command, int join_fd) {
  UniqueFd null_fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null_fd.is_valid()) return Status::from_errno("/dev/null", errno);
  ChildStart start;
  start.command = command;
  start.descriptors = {{null_fd.get(), STDIN_FILENO},
                       {STDERR_FILENO, STDOUT_FILENO},
                       {STDERR_FILENO, STDERR_FILENO},
                       {join_fd, kJoinFd}};
  start.ignores_interrupt = true;
  return start_child(start);
}

// What `rank` of the group needs to know.
JoinInfo make_join_info(const LocalGroupOptions& options, const GroupSetup& setup, int rank) {
  JoinInfo info;
  info.link = options.link;
  info.setup = setup;
  info.setup.rank = rank;
  info.setup.node_name = options.node_names[static_cast<size_t>(rank)];
  info.node_names = options.node_names;
  return info;
}

}  // namespace

LinkChoice choose_local_link(int size) {
  const Status room = reserve_shm_links(size);
  if (room.is_ok()) return {};
  return {.link = LinkKind::kTcp, .reason = room.message()};
}

Result<std::unique_ptr<LocalGroup>> LocalGroup::launch(LocalGroupOptions options,
                                                       const Deadline& deadline) {
  if (options.node_names.empty()) {
    for (int rank = 0; rank < options.size; ++rank) {
      options.node_names.push_back("node-" + std::to_string(rank));
    }
  }
  GroupSetup setup;
  setup.size = options.size;
  setup.fabric = options.fabric;
  RETURN_IF_ERROR(check_group_setup(setup));
  CHECK(options.node_names.size() == static_cast<size_t>(options.size));
  CHECK(options.size == 1 || !options.child_command.empty());
  setup.node_name = options.node_names[0];
  ASSIGN_OR_RETURN(setup.epoch, make_epoch());
  ASSIGN_OR_RETURN(setup.secret, make_secret());
  std::unique_ptr<LocalGroup> group(new LocalGroup(std::move(options)));
  if (group->options_.link == LinkKind::kShm) {
    RETURN_IF_ERROR(reserve_shm_links(group->options_.size));
  }
  RETURN_IF_ERROR(group->start_children());
  if (const Status status = group->connect(setup, deadline); !status.is_ok()) {
    return group->explain(status);
  }
  return group;
}

Status LocalGroup::start_children() {
  children_.resize(static_cast<size_t>(options_.size - 1));
  for (Child& child : children_) {
    ASSIGN_OR_RETURN(SocketPair sockets, make_socket_pair());
    ASSIGN_OR_RETURN(child.pid, start_node(options_.child_command, sockets.second.get()));
    child.join_socket = std::move(sockets.first);
  }
  return Status::ok();
}

Status LocalGroup::connect(const GroupSetup& setup, const Deadline& deadline) {
  if (options_.size == 1) {
    fabric_ = make_single_fabric(options_.node_names[0]);
    return Status::ok();
  }
  return options_.link == LinkKind::kShm ? connect_shm(setup, deadline)
                                         : connect_tcp(setup, deadline);
}

// A failure to connect, with the ends of the processes that have ended: they tend to explain it.
Status LocalGroup::explain(const Status& status) {
  // A process that has closed its sockets is about to end.
  const Deadline deadline = Deadline::after(kEndPatience);
  const auto has_any_ended = [this] {
    (void)try_reap_all();
    return std::ranges::any_of(children_, &Child::is_reaped);
  };
  while (!has_any_ended() && !deadline.expired()) std::this_thread::sleep_for(kReapPause);
  std::string message = status.message();
  for (size_t i = 0; i < children_.size(); ++i) {
    if (!children_[i].is_reaped) continue;
    message += "; " + rank_text(i + 1) + " " + end_text(children_[i].wait_status);
  }
  return {status.code(), std::move(message)};
}

std::string LocalGroup::rank_text(size_t rank) const {
  return "rank " + std::to_string(rank) + " (" + options_.node_names[rank] + ")";
}

Status LocalGroup::connect_shm(const GroupSetup& setup, const Deadline& deadline) {
  ASSIGN_OR_RETURN(auto links, make_shm_links(options_.size, setup.fabric.slots));
  for (int rank = 1; rank < options_.size; ++rank) {
    const int socket = children_[static_cast<size_t>(rank - 1)].join_socket.get();
    JoinInfo info = make_join_info(options_, setup, rank);
    ShmRankEnds& ends = links[static_cast<size_t>(rank)];
    info.has_mapped_memory = ends.mapped.is_valid();
    Status status = send_join_info(socket, info, deadline);
    if (status.is_ok() && info.has_mapped_memory) {
      const std::array<int, 1> fds = {ends.mapped.get()};
      status = send_descriptors(socket, fds, deadline);
    }
    for (const ShmLinkEnd& end : ends.links) {
      if (!status.is_ok()) break;
      const std::array<int, 2> fds = {end.liveness.get(), end.memory.get()};
      status = send_descriptors(socket, fds, deadline);
    }
    if (!status.is_ok()) return status.with_context(rank_text(static_cast<size_t>(rank)));
    // Ours are closed, so that the death of a child is the end of its streams.
    ends = {};
  }
  ASSIGN_OR_RETURN(fabric_,
                   connect_shm_group(setup, options_.node_names, std::move(links[0]), deadline));
  return Status::ok();
}

Status LocalGroup::connect_tcp(const GroupSetup& setup, const Deadline& deadline) {
  TcpGroupOptions tcp;
  tcp.setup = setup;
  tcp.ranks_on_host = options_.size;
  std::string host = "127.0.0.1";
  if (options_.link == LinkKind::kVerbs) {
    ASSIGN_OR_RETURN(tcp.verbs.table, load_verbs());
    ASSIGN_OR_RETURN(host, local_rdma_address(*tcp.verbs.table));
  }
  if (options_.link == LinkKind::kUcx) {
    ASSIGN_OR_RETURN(tcp.ucx.table, load_ucx());
  }
  ASSIGN_OR_RETURN(tcp.listener, listen_tcp(HostPort{.host = host, .port = 0}));
  ASSIGN_OR_RETURN(const SocketAddress address, local_address(tcp.listener.get()));
  for (int rank = 1; rank < options_.size; ++rank) {
    const int socket = children_[static_cast<size_t>(rank - 1)].join_socket.get();
    JoinInfo info = make_join_info(options_, setup, rank);
    info.host = host;
    info.port = address.port();
    RETURN_IF_ERROR(
        send_join_info(socket, info, deadline).with_context(rank_text(static_cast<size_t>(rank))));
    tcp.acceptor.watches.push_back({.rank = rank, .fd = socket});
  }
  ASSIGN_OR_RETURN(fabric_, connect_tcp_group(std::move(tcp), deadline));
  return Status::ok();
}

LocalGroup::~LocalGroup() {
  // Children see the goodbye, or the end of their sockets, and end by themselves.
  fabric_.reset();
  for (Child& child : children_) child.join_socket.reset();
  const Deadline deadline = Deadline::after(options_.exit_grace);
  while (!try_reap_all() && !deadline.expired()) std::this_thread::sleep_for(kReapPause);
  for (Child& child : children_) {
    if (child.pid < 0 || child.is_reaped) continue;
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
  }
}

pid_t LocalGroup::pid(int rank) const {
  CHECK(rank >= 1 && rank < options_.size);
  return children_[static_cast<size_t>(rank - 1)].pid;
}

// True when the child's end has been seen.
bool LocalGroup::try_reap(Child& child) {
  if (child.pid < 0) return true;
  if (!child.is_reaped) child.is_reaped = waitpid(child.pid, &child.wait_status, WNOHANG) != 0;
  return child.is_reaped;
}

bool LocalGroup::try_reap_all() {
  bool is_all = true;
  for (Child& child : children_) is_all = try_reap(child) && is_all;
  return is_all;
}

Status LocalGroup::wait_for_exit(const Deadline& deadline) {
  while (!try_reap_all()) {
    if (deadline.expired()) return Status::busy("node processes are still running");
    std::this_thread::sleep_for(kReapPause);
  }
  for (size_t i = 0; i < children_.size(); ++i) {
    if (children_[i].wait_status == 0) continue;
    return Status::group(rank_text(i + 1) + " " + end_text(children_[i].wait_status));
  }
  return Status::ok();
}

namespace {

Result<std::unique_ptr<Fabric>> join_with(int socket, const JoinInfo& info,
                                          const Deadline& deadline) {
  if (info.link != LinkKind::kShm) {
    TcpGroupOptions tcp;
    if (info.link == LinkKind::kVerbs) {
      ASSIGN_OR_RETURN(tcp.verbs.table, load_verbs());
    }
    if (info.link == LinkKind::kUcx) {
      ASSIGN_OR_RETURN(tcp.ucx.table, load_ucx());
    }
    tcp.setup = info.setup;
    tcp.rank0 = HostPort{.host = info.host, .port = info.port};
    tcp.ranks_on_host = info.setup.size;
    return connect_tcp_group(std::move(tcp), deadline);
  }
  ShmRankEnds ends;
  if (info.has_mapped_memory) {
    auto mapped = receive_descriptors(socket, 1, deadline);
    if (!mapped.is_ok()) return mapped.status().with_context("the launching node");
    ends.mapped = std::move(mapped->front());
  }
  for (int peer = 0; peer < info.setup.size; ++peer) {
    if (peer == info.setup.rank) continue;
    auto fds = receive_descriptors(socket, 2, deadline);
    if (!fds.is_ok()) return fds.status().with_context("the launching node");
    ends.links.push_back({peer, std::move((*fds)[0]), std::move((*fds)[1])});
  }
  return connect_shm_group(info.setup, info.node_names, std::move(ends), deadline);
}

}  // namespace

Result<std::unique_ptr<Fabric>> join_local_group(UniqueFd join_socket, const Deadline& deadline,
                                                 Program program) {
  const int socket = join_socket.get();
  RETURN_IF_ERROR(set_non_blocking(socket).with_context("this is no node of a local group"));
  Result<JoinInfo> info = receive_join_info(socket, deadline);
  if (!info.is_ok()) return info.status().with_context("the launching node");
  info->setup.fabric.program = std::move(program);
  ASSIGN_OR_RETURN(auto fabric, join_with(socket, *info, deadline));
  fabric->keep_open(std::move(join_socket));
  return fabric;
}

}  // namespace shoal::fabric

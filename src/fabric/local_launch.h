// LocalGroup: a group of processes on this machine, started and ended by rank 0.
//
// launch() forks and executes size-1 children, each with stdin /dev/null, stdout and stderr on our
// stderr, SIGINT ignored, and one inherited socket on descriptor kJoinFd; everything else is
// closed. Secret, epoch, rank and shared memory travel over that socket, never in arguments or
// environment. A child calls join_local_group(). Nothing has a name in the file system, so nothing
// stays behind, and children are killed when the launching thread ends (keep that thread for the
// group's life). Thread rule: one thread. The destructor closes the fabric, waits `exit_grace` for
// the children and kills the rest.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "fabric/fabric.h"

namespace shoal::fabric {

struct GroupSetup;

inline constexpr int kJoinFd = 3;

// How nodes of one machine are joined unless somebody chooses: over shared memory, the fastest in
// every measurement (README.md of the root), or over TCP where the machine does not allow as many
// descriptors as that takes.
struct LinkChoice {
  LinkKind link = LinkKind::kShm;
  std::string reason{};  // why it is not shared memory
};
LinkChoice choose_local_link(int size);

struct LocalGroupOptions {
  int size = 2;
  LinkKind link = LinkKind::kShm;
  std::vector<std::string> child_command;  // argv; [0] is a path
  FabricOptions fabric;
  std::vector<std::string> node_names;  // by rank; empty: "node-0", "node-1", ...
  Nanoseconds exit_grace{std::chrono::seconds(2)};
};

class LocalGroup {
 public:
  // Starts the children and joins rank 0 with them. On failure everything started is ended.
  static Result<std::unique_ptr<LocalGroup>> launch(LocalGroupOptions options,
                                                    const Deadline& deadline);
  ~LocalGroup();
  LocalGroup(const LocalGroup&) = delete;
  LocalGroup& operator=(const LocalGroup&) = delete;

  Fabric& fabric() { return *fabric_; }
  // Of a child; rank >= 1.
  pid_t pid(int rank) const;
  // Waits until all children have ended by themselves. kBusy at the deadline; kGroup when one ended
  // with a signal or a status other than 0, which it names.
  Status wait_for_exit(const Deadline& deadline);

 private:
  struct Child {
    pid_t pid = -1;
    bool is_reaped = false;
    int wait_status = 0;
    UniqueFd join_socket;  // rank 0's end
  };
  explicit LocalGroup(LocalGroupOptions options) : options_(std::move(options)) {}
  Status start_children();
  Status connect(const GroupSetup& setup, const Deadline& deadline);
  Status connect_shm(const GroupSetup& setup, const Deadline& deadline);
  Status connect_tcp(const GroupSetup& setup, const Deadline& deadline);
  Status explain(const Status& status);
  std::string rank_text(size_t rank) const;
  static bool try_reap(Child& child);
  bool try_reap_all();

  LocalGroupOptions options_;
  std::vector<Child> children_;  // [rank - 1]
  std::unique_ptr<Fabric> fabric_;
};

// In a child: builds this rank's fabric from the inherited socket.
Result<std::unique_ptr<Fabric>> join_local_group(UniqueFd join_socket, const Deadline& deadline,
                                                 Program program = {});

}  // namespace shoal::fabric

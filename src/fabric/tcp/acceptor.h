// Acceptor: takes connections of a forming group, many handshakes at once.
//
// Whoever connects without a valid handshake is dropped with one log line; it costs a bounded
// buffer for a bounded time and never keeps a member of the group waiting. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "fabric/group_setup.h"
#include "fabric/link/handshake.h"

namespace shoal::fabric {

struct AcceptorOptions {
  Nanoseconds handshake_max{std::chrono::seconds(5)};
  size_t pending_max = 64;  // more connections than that: the oldest is dropped
  // A descriptor that closes when that rank's process has ended before it joined.
  struct Watch {
    int rank = 0;
    int fd = -1;
  };
  std::vector<Watch> watches;
};

class Acceptor {
 public:
  // Borrows the listening socket. `check` decides on an authenticated peer (see HandshakeConfig).
  Acceptor(int listener, const GroupSetup& setup, AcceptorOptions options,
           std::function<Status(const NodeIdentity&)> check);
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  struct Accepted {
    NodeIdentity peer;
    UniqueFd socket;
  };
  // The next member; kGroup at the deadline or when a watched process ended. `waiting_for` begins
  // those messages.
  Result<Accepted> next(std::string_view waiting_for, const Deadline& deadline);

 private:
  struct Pending;
  Status poll_once(std::string_view waiting_for, const Deadline& deadline);
  void accept_new();
  void drop(Pending& pending, std::string_view why);
  bool step(Pending& pending);
  Status check(const NodeIdentity& peer) const;

  const int listener_;
  const GroupSetup setup_;
  const AcceptorOptions options_;
  std::function<Status(const NodeIdentity&)> check_;
  std::list<Pending> pending_;
  std::list<Accepted> ready_;
  std::string last_drop_;
  std::optional<Deadline> accept_pause_;
};

}  // namespace shoal::fabric

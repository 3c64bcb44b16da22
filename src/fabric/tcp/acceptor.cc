#include "fabric/tcp/acceptor.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/log.h"
#include "fabric/link/stream.h"
#include "fabric/tcp/address.h"

namespace shoal::fabric {

namespace {

// Connections taken before the handshakes under way have their turn again.
constexpr int kAcceptsAtOnce = 16;
// How long the listener is left alone after it could not give a connection.
constexpr Nanoseconds kAcceptPause = std::chrono::milliseconds(100);

}  // namespace

struct Acceptor::Pending {
  UniqueFd socket;
  std::string address;
  Handshake handshake;
  Deadline deadline;
  bool is_over = false;
};

Acceptor::Acceptor(int listener, const GroupSetup& setup, AcceptorOptions options,
                   std::function<Status(const NodeIdentity&)> check)
    : listener_(listener), setup_(setup), options_(std::move(options)), check_(std::move(check)) {}

Acceptor::~Acceptor() = default;

Result<Acceptor::Accepted> Acceptor::next(std::string_view waiting_for, const Deadline& deadline) {
  while (ready_.empty()) {
    if (deadline.expired()) {
      return Status::group(std::string(waiting_for) + ": timed out" +
                           (last_drop_.empty() ? "" : "; last dropped connection: " + last_drop_));
    }
    RETURN_IF_ERROR(poll_once(waiting_for, deadline));
  }
  Accepted accepted = std::move(ready_.front());
  ready_.pop_front();
  return accepted;
}

Status Acceptor::poll_once(std::string_view waiting_for, const Deadline& deadline) {
  std::vector<pollfd> entries;
  const bool takes = !accept_pause_.has_value() || accept_pause_->expired();
  entries.push_back({.fd = listener_, .events = takes ? short{POLLIN} : short{0}, .revents = 0});
  for (const auto& watch : options_.watches) {
    entries.push_back({.fd = watch.fd, .events = 0, .revents = 0});
  }
  for (const Pending& one : pending_) {
    const bool has_output = !one.handshake.outgoing().empty();
    entries.push_back({.fd = one.socket.get(),
                       .events = static_cast<short>(POLLIN | (has_output ? POLLOUT : 0)),
                       .revents = 0});
  }
  // Short slices, to end handshakes that take too long.
  poll(entries.data(), entries.size(), poll_timeout_ms(deadline, 100));
  for (size_t i = 0; i < options_.watches.size(); ++i) {
    if ((entries[i + 1].revents & (POLLHUP | POLLERR)) == 0) continue;
    return Status::group(std::string(waiting_for) + ": the process of rank " +
                         std::to_string(options_.watches[i].rank) + " ended before it joined" +
                         (last_drop_.empty() ? "" : "; last dropped connection: " + last_drop_));
  }
  for (Pending& one : pending_) one.is_over = step(one);
  std::erase_if(pending_, [](const Pending& one) { return one.is_over; });
  if ((entries[0].revents & POLLIN) != 0) accept_new();
  return Status::ok();
}

void Acceptor::accept_new() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    UniqueFd socket(accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket.is_valid()) {
      if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return;
      // Out of descriptors or memory: the listener stays readable, so waiting on it would not wait.
      LOG(warn, "cannot take a connection: {}", std::system_category().message(errno));
      accept_pause_ = Deadline::after(kAcceptPause);
      return;
    }
    const Result<SocketAddress> address = peer_address(socket.get());
    HandshakeConfig config =
        make_handshake_config(setup_, HandshakeRole::kResponder, LinkPurpose::kLiveness);
    config.accept = [this](const NodeIdentity& peer) { return check(peer); };
    Result<Handshake> handshake = Handshake::start(std::move(config));
    if (!handshake.is_ok()) {
      LOG(warn, "cannot begin a handshake: {}", handshake.status().message());
      return;
    }
    if (pending_.size() >= options_.pending_max) {
      drop(pending_.front(), "too many connections at once");
      pending_.pop_front();
    }
    pending_.push_back({.socket = std::move(socket),
                        .address = address.is_ok() ? address->text() : "an unknown address",
                        .handshake = std::move(*handshake),
                        .deadline = Deadline::after(options_.handshake_max),
                        .is_over = false});
  }
}

void Acceptor::drop(Pending& pending, std::string_view why) {
  std::string who = pending.address;
  if (!pending.handshake.peer_name().empty()) who += " (" + pending.handshake.peer_name() + ")";
  last_drop_ = who + " " + std::string(why);
  LOG(warn, "dropped a connection: {}", last_drop_);
}

// The owner's word, and that nobody who is ready but not taken yet has this place.
Status Acceptor::check(const NodeIdentity& peer) const {
  for (const Accepted& one : ready_) {
    if (one.peer.rank != peer.rank || one.peer.purpose != peer.purpose) continue;
    return Status::busy("rank " + std::to_string(peer.rank) + " of this group has joined " +
                        setup_.node_name + " already");
  }
  return check_(peer);
}

// True when the connection is no longer pending: it became a member, or was dropped.
bool Acceptor::step(Pending& pending) {
  const Result<bool> is_done = drive_handshake(pending.socket.get(), pending.handshake);
  if (!is_done.is_ok()) {
    drop(pending, is_done.status().message());
    return true;
  }
  if (*is_done) {
    // A second connection in the same place may have finished first.
    if (const Status status = check(pending.handshake.peer()); !status.is_ok()) {
      drop(pending, status.message());
      return true;
    }
    ready_.push_back({pending.handshake.peer(), std::move(pending.socket)});
    return true;
  }
  if (!pending.deadline.expired()) return false;
  drop(pending, pending.handshake.has_heard() ? "stopped during the handshake"
                                              : "connected and sent nothing");
  return true;
}

}  // namespace shoal::fabric

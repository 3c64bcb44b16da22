#include "fabric/link/stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "fabric/link/socket_errors.h"

namespace shoal::fabric {
namespace {

constexpr size_t kDescriptorsMax = 16;

// Waits until the socket is ready for `events`; kGroup at the deadline.
Status wait_ready(int fd, short events, const Deadline& deadline) {
  while (true) {
    pollfd entry{.fd = fd, .events = events, .revents = 0};
    const int ready = poll(&entry, 1, poll_timeout_ms(deadline));
    if (ready > 0) return Status::ok();
    if (ready < 0 && errno != EINTR) return Status::from_errno("poll", errno);
    if (deadline.expired()) return Status::group("timed out");
  }
}

}  // namespace

Status set_non_blocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0) {
    return Status::from_errno("fcntl(O_NONBLOCK)", errno);
  }
  return Status::ok();
}

Result<SocketPair> make_socket_pair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) != 0) {
    return Status::from_errno("socketpair", errno);
  }
  return SocketPair{UniqueFd(fds[0]), UniqueFd(fds[1])};
}

int poll_timeout_ms(const Deadline& deadline, int slice_ms) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.left()).count();
  return static_cast<int>(std::min<int64_t>(left, slice_ms));
}

Status write_all(int fd, std::span<const std::byte> bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t done = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (done >= 0) {
      bytes = bytes.subspan(static_cast<size_t>(done));
    } else if (is_would_block(errno)) {
      RETURN_IF_ERROR(wait_ready(fd, POLLOUT, deadline));
    } else {
      return Status::group("cannot be written to: " + errno_text(errno));
    }
  }
  return Status::ok();
}

Status read_all(int fd, std::span<std::byte> bytes, const Deadline& deadline) {
  while (!bytes.empty()) {
    const ssize_t done = recv(fd, bytes.data(), bytes.size(), 0);
    if (done > 0) {
      bytes = bytes.subspan(static_cast<size_t>(done));
    } else if (done == 0) {
      return Status::group("closed the connection");
    } else if (is_would_block(errno)) {
      RETURN_IF_ERROR(wait_ready(fd, POLLIN, deadline));
    } else {
      return Status::group("cannot be read from: " + errno_text(errno));
    }
  }
  return Status::ok();
}

Status write_number(int fd, uint32_t number, const Deadline& deadline) {
  return write_all(fd, std::as_bytes(std::span(&number, 1)), deadline);
}

Result<uint32_t> read_number(int fd, const Deadline& deadline) {
  uint32_t number = 0;
  RETURN_IF_ERROR(read_all(fd, std::as_writable_bytes(std::span(&number, 1)), deadline));
  return number;
}

namespace {

constexpr std::byte kReady{0x52};

}  // namespace

Status send_ready(int fd, const Deadline& deadline) {
  return write_all(fd, {&kReady, 1}, deadline);
}

Result<bool> take_ready(int fd) {
  std::byte ready{};
  const ssize_t done = recv(fd, &ready, 1, MSG_DONTWAIT);
  if (done == 0) return Status::group("closed the connection before it was ready");
  if (done < 0 && is_would_block(errno)) return false;
  if (done < 0) return Status::group("cannot be read from: " + errno_text(errno));
  if (ready != kReady) return Status::group("sent rubbish instead of being ready");
  return true;
}

Status send_descriptors(int fd, std::span<const int> descriptors, const Deadline& deadline) {
  CHECK(!descriptors.empty() && descriptors.size() <= kDescriptorsMax);
  std::byte mark{1};
  iovec part{.iov_base = &mark, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  while (sendmsg(fd, &message, MSG_NOSIGNAL) != 1) {
    if (!is_would_block(errno)) {
      return Status::group("cannot be sent descriptors: " + errno_text(errno));
    }
    RETURN_IF_ERROR(wait_ready(fd, POLLOUT, deadline));
  }
  return Status::ok();
}

Result<std::vector<UniqueFd>> receive_descriptors(int fd, size_t count, const Deadline& deadline) {
  CHECK(count > 0 && count <= kDescriptorsMax);
  std::byte mark{0};
  iovec part{.iov_base = &mark, .iov_len = 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptorsMax * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  ssize_t done = 0;
  while (true) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    done = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (done >= 0) break;
    if (!is_would_block(errno)) {
      return Status::group("cannot be read from: " + errno_text(errno));
    }
    RETURN_IF_ERROR(wait_ready(fd, POLLIN, deadline));
  }
  if (done == 0) return Status::group("closed the connection");
  std::vector<UniqueFd> descriptors;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t here = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < here; ++i) {
      int received = -1;
      std::memcpy(&received, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(received);
    }
  }
  if (descriptors.size() != count || (message.msg_flags & MSG_CTRUNC) != 0) {
    return Status::group("sent " + std::to_string(descriptors.size()) + " descriptors where " +
                         std::to_string(count) + " were due");
  }
  return descriptors;
}

Result<bool> drive_handshake(int fd, Handshake& handshake) {
  while (true) {
    while (!handshake.outgoing().empty()) {
      const auto bytes = handshake.outgoing();
      const ssize_t done = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (done < 0 && is_would_block(errno)) break;
      if (done < 0) return Status::group("closed the connection: " + errno_text(errno));
      handshake.sent(static_cast<size_t>(done));
    }
    if (handshake.is_done()) return true;
    if (handshake.wanted() == 0) return false;
    std::array<std::byte, Handshake::kProofBytes> buffer;
    const size_t wanted = std::min(handshake.wanted(), buffer.size());
    const ssize_t done = recv(fd, buffer.data(), wanted, 0);
    if (done < 0 && is_would_block(errno)) return false;
    if (done < 0) return Status::group("closed the connection: " + errno_text(errno));
    if (done == 0) {
      return Status::group(handshake.has_heard() ? "closed the connection during the handshake"
                                                 : "closed the connection without an answer");
    }
    Status status = handshake.received(std::span(buffer).first(static_cast<size_t>(done)));
    if (!status.is_ok()) {
      // The refusal fits any socket buffer; a peer that does not take it will see the close.
      const auto bytes = handshake.outgoing();
      if (!bytes.empty()) (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      return status;
    }
  }
}

Result<NodeIdentity> run_handshake(int fd, HandshakeConfig config, std::string_view who,
                                   const Deadline& deadline) {
  RETURN_IF_ERROR(set_non_blocking(fd));
  ASSIGN_OR_RETURN(Handshake handshake, Handshake::start(std::move(config)));
  while (true) {
    const Result<bool> is_done = drive_handshake(fd, handshake);
    if (!is_done.is_ok()) {
      return Status(is_done.status().code(), std::string(who) + " " + is_done.status().message());
    }
    if (*is_done) return handshake.peer();
    const short events = static_cast<short>(POLLIN | (handshake.outgoing().empty() ? 0 : POLLOUT));
    if (!wait_ready(fd, events, deadline).is_ok()) {
      return Status::group(std::string(who) +
                           (handshake.has_heard()
                                ? " stopped answering during the handshake"
                                : " accepted the connection and gave no answer in time"));
    }
  }
}

}  // namespace shoal::fabric

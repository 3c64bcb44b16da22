// Helpers for non-blocking stream sockets: whole reads and writes with a deadline, descriptors over
// UNIX sockets, and the handshake on top.
//
// Thread rule: pure functions; one thread per socket. None of them logs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "fabric/link/handshake.h"

namespace shoal::fabric {

Status set_non_blocking(int fd);

// A pair of connected, non-blocking, close-on-exec UNIX stream sockets.
struct SocketPair {
  UniqueFd first;
  UniqueFd second;
};
Result<SocketPair> make_socket_pair();

// Milliseconds for poll(2) until the deadline, rounded up, at most slice_ms.
int poll_timeout_ms(const Deadline& deadline, int slice_ms = 60'000);

// All of them, or kGroup with what happened.
Status write_all(int fd, std::span<const std::byte> bytes, const Deadline& deadline);
Status read_all(int fd, std::span<std::byte> bytes, const Deadline& deadline);

// The same for one number, little-endian.
Status write_number(int fd, uint32_t number, const Deadline& deadline);
Result<uint32_t> read_number(int fd, const Deadline& deadline);

// One byte that says that this side is ready; whether the peer's has come, without waiting. kGroup:
// the connection is closed, or another byte came.
Status send_ready(int fd, const Deadline& deadline);
Result<bool> take_ready(int fd);

// One byte with descriptors beside it, over a UNIX socket.
Status send_descriptors(int fd, std::span<const int> descriptors, const Deadline& deadline);
// Exactly `count` descriptors (at most 16), close-on-exec.
Result<std::vector<UniqueFd>> receive_descriptors(int fd, size_t count, const Deadline& deadline);

// Runs a handshake on a non-blocking socket. Failures begin with `who`, the peer in the caller's
// words ("127.0.0.1:7000", "rank 1 (node-1)"), and tell apart: no answer, another protocol,
// refused, closed.
Result<NodeIdentity> run_handshake(int fd, HandshakeConfig config, std::string_view who,
                                   const Deadline& deadline);

// One non-blocking move of bytes for a handshake; true when it is done.
Result<bool> drive_handshake(int fd, Handshake& handshake);

}  // namespace shoal::fabric

// SocketAddress: where a TCP peer is, as people write it and as the kernel takes it.
//
// Forms: "host:port", "192.0.2.1:7000", "[2001:db8::1]:7000", "[fe80::1%eth0]:7000". A listener on
// "[::]:port" takes IPv4 peers too.
// Thread rule: values and functions; resolving a name may start a helper thread.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace shoal::fabric {

// A written address, not yet resolved.
struct HostPort {
  std::string host;  // without brackets; a scope id stays after '%'
  uint16_t port = 0;
};
// kRequest with what to write instead.
Result<HostPort> parse_host_port(std::string_view text);
// With brackets where they belong.
std::string to_text(const HostPort& address);

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  // "127.0.0.1:7000", "[::1]:7000", "[fe80::1%eth0]:7000".
  std::string text() const;
  uint16_t port() const;
  void set_port(uint16_t port);
};

// All addresses of a host, numeric or by name. Names are looked up beside this thread, so that the
// deadline holds.
Result<std::vector<SocketAddress>> resolve(const HostPort& address, const Deadline& deadline);

// The socket's own or its peer's address.
Result<SocketAddress> local_address(int fd);
Result<SocketAddress> peer_address(int fd);

struct TcpTuning {
  int send_buffer_bytes = 0;     // 0: the kernel's choice
  int receive_buffer_bytes = 0;  // 0: the kernel's choice
};

// A listening, non-blocking socket; port 0 takes any. "... is already in use" when it is.
Result<UniqueFd> listen_tcp(const HostPort& address);
Result<UniqueFd> listen_tcp(const SocketAddress& address);

// A connected, non-blocking socket, not tuned yet. Tells apart, naming the address: refused, no
// answer in time, no route, unknown host.
Result<UniqueFd> connect_tcp(const HostPort& address, const Deadline& deadline);
Result<UniqueFd> connect_tcp(const SocketAddress& address, const Deadline& deadline);

// TCP_NODELAY, keepalive and user timeout for a connected socket of a group. Does nothing on a UNIX
// socket.
Status tune_tcp(int fd, const TcpTuning& tuning);

}  // namespace shoal::fabric

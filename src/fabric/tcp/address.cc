#include "fabric/tcp/address.h"

#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>

#include "base/os/thread.h"
#include "fabric/link/socket_errors.h"
#include "fabric/link/stream.h"

namespace shoal::fabric {
namespace {

constexpr std::string_view kForms = "write host:port, 192.0.2.1:port or [IPv6 address]:port";

// An unanswered byte breaks the connection after this; liveness is usually faster.
constexpr int kUserTimeoutMs = 5000;
constexpr int kKeepIdleSeconds = 2;
constexpr int kKeepIntervalSeconds = 1;
constexpr int kKeepCount = 3;
constexpr int kBacklog = 128;

Result<uint16_t> parse_port(std::string_view text, std::string_view whole) {
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || port > 65535) {
    return Status::request("'" + std::string(whole) + "': the port must be a number from 0 to " +
                           "65535; " + std::string(kForms));
  }
  return static_cast<uint16_t>(port);
}

addrinfo make_hints(int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  return hints;
}

// What a lookup leaves behind.
struct Lookup {
  std::mutex mutex;
  std::condition_variable is_ready;
  bool is_done = false;
  int error = 0;
  std::vector<SocketAddress> addresses;
};

// getaddrinfo into values; returns its error code.
int look_up(const HostPort& address, int flags, std::vector<SocketAddress>& out) {
  const addrinfo hints = make_hints(flags);
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
  if (error != 0) return error;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    SocketAddress found;
    if (entry->ai_addrlen > sizeof(found.storage)) continue;
    std::memcpy(&found.storage, entry->ai_addr, entry->ai_addrlen);
    found.bytes = entry->ai_addrlen;
    out.push_back(found);
  }
  freeaddrinfo(list);
  return out.empty() ? EAI_NONAME : 0;
}

Status unknown_host(const HostPort& address, std::string_view why) {
  return Status::request("unknown host '" + address.host + "': " + std::string(why));
}

Status set_option(int fd, int level, int name, int value) {
  if (setsockopt(fd, level, name, &value, sizeof(value)) != 0) {
    return Status::from_errno("setsockopt", errno);
  }
  return Status::ok();
}

}  // namespace

Result<HostPort> parse_host_port(std::string_view text) {
  HostPort address;
  std::string_view port;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos || text.substr(close + 1, 1) != ":") {
      return Status::request("'" + std::string(text) +
                             "': an IPv6 address is written [address]:port");
    }
    address.host = text.substr(1, close - 1);
    port = text.substr(close + 2);
  } else {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) {
      return Status::request("'" + std::string(text) + "' has no port; " + std::string(kForms));
    }
    if (text.find(':') != colon) {
      return Status::request("'" + std::string(text) +
                             "': an IPv6 address needs brackets, as in [::1]:7000");
    }
    address.host = text.substr(0, colon);
    port = text.substr(colon + 1);
  }
  if (address.host.empty()) {
    return Status::request("'" + std::string(text) + "' has no host; " + std::string(kForms));
  }
  ASSIGN_OR_RETURN(address.port, parse_port(port, text));
  return address;
}

std::string to_text(const HostPort& address) {
  const bool needs_brackets = address.host.find(':') != std::string::npos;
  return (needs_brackets ? "[" + address.host + "]" : address.host) + ":" +
         std::to_string(address.port);
}

std::string SocketAddress::text() const {
  char host[NI_MAXHOST];
  char service[NI_MAXSERV];
  if (getnameinfo(reinterpret_cast<const sockaddr*>(&storage), bytes, host, sizeof(host), service,
                  sizeof(service), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return "an unknown address";
  }
  return storage.ss_family == AF_INET6 ? "[" + std::string(host) + "]:" + service
                                       : std::string(host) + ":" + service;
}

uint16_t SocketAddress::port() const {
  if (storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

void SocketAddress::set_port(uint16_t port) {
  if (storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
  }
}

Result<std::vector<SocketAddress>> resolve(const HostPort& address, const Deadline& deadline) {
  std::vector<SocketAddress> numeric;
  if (look_up(address, AI_NUMERICHOST, numeric) == 0) return numeric;
  if (const size_t scope = address.host.find('%'); scope != std::string::npos) {
    return unknown_host(address, "no such interface as '" + address.host.substr(scope + 1) +
                                     "', or not an IPv6 address");
  }
  // Shared, since the resolver cannot be interrupted: at the deadline its thread is left to end by
  // itself, and whoever ends last frees the result.
  auto lookup = std::make_shared<Lookup>();
  ASSIGN_OR_RETURN(std::thread thread, start_thread([lookup, address] {
                     std::vector<SocketAddress> found;
                     const int error = look_up(address, AI_ADDRCONFIG, found);
                     const std::scoped_lock lock(lookup->mutex);
                     lookup->addresses = std::move(found);
                     lookup->error = error;
                     lookup->is_done = true;
                     lookup->is_ready.notify_one();
                   }));
  thread.detach();
  std::unique_lock lock(lookup->mutex);
  if (!lookup->is_ready.wait_for(lock, deadline.left(), [&] { return lookup->is_done; })) {
    return unknown_host(address, "the name was not resolved in time");
  }
  if (lookup->error != 0) return unknown_host(address, gai_strerror(lookup->error));
  return std::move(lookup->addresses);
}

Result<SocketAddress> local_address(int fd) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) != 0) {
    return Status::from_errno("getsockname", errno);
  }
  return address;
}

Result<SocketAddress> peer_address(int fd) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.bytes) != 0) {
    return Status::from_errno("getpeername", errno);
  }
  return address;
}

Result<UniqueFd> listen_tcp(const HostPort& address) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> found, resolve(address, deadline));
  return listen_tcp(found.front());
}

Result<UniqueFd> listen_tcp(const SocketAddress& address) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_valid()) return Status::from_errno("socket", errno);
  RETURN_IF_ERROR(set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1));
  if (address.storage.ss_family == AF_INET6) {
    RETURN_IF_ERROR(set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0));
  }
  const auto* raw = reinterpret_cast<const sockaddr*>(&address.storage);
  if (bind(fd.get(), raw, address.bytes) != 0 || listen(fd.get(), kBacklog) != 0) {
    if (errno == EADDRINUSE) {
      return Status::request(address.text() +
                             " is already in use: stop what listens there or choose " +
                             "another port");
    }
    return Status::request("cannot listen on " + address.text() + ": " + errno_text(errno));
  }
  return fd;
}

Result<UniqueFd> connect_tcp(const SocketAddress& address, const Deadline& deadline) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_valid()) return Status::from_errno("socket", errno);
  int error = 0;
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.bytes) != 0) {
    error = errno;
  }
  if (error == EINPROGRESS) {
    pollfd entry{.fd = fd.get(), .events = POLLOUT, .revents = 0};
    int ready = 0;
    do {
      ready = poll(&entry, 1, poll_timeout_ms(deadline));
    } while (ready <= 0 && !deadline.expired());
    if (ready <= 0) return Status::group(address.text() + ": no answer to the connection request");
    socklen_t bytes = sizeof(error);
    if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
  }
  switch (error) {
    case 0:
      return fd;
    case ECONNREFUSED:
      return Status::group(address.text() + ": connection refused: nothing listens there");
    case ETIMEDOUT:
      return Status::group(address.text() + ": no answer to the connection request");
    default:
      return Status::group(address.text() + ": cannot connect: " + errno_text(error));
  }
}

Result<UniqueFd> connect_tcp(const HostPort& address, const Deadline& deadline) {
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> candidates, resolve(address, deadline));
  Status last = Status::group(to_text(address) + ": no address to connect to");
  for (const SocketAddress& candidate : candidates) {
    Result<UniqueFd> fd = connect_tcp(candidate, deadline);
    if (fd.is_ok()) return fd;
    last = fd.status();
    if (deadline.expired()) break;
  }
  const std::string text = to_text(address);
  return last.message().starts_with(text) ? last : last.with_context(text);
}

Status tune_tcp(int fd, const TcpTuning& tuning) {
  if (tuning.send_buffer_bytes > 0) {
    RETURN_IF_ERROR(set_option(fd, SOL_SOCKET, SO_SNDBUF, tuning.send_buffer_bytes));
  }
  if (tuning.receive_buffer_bytes > 0) {
    RETURN_IF_ERROR(set_option(fd, SOL_SOCKET, SO_RCVBUF, tuning.receive_buffer_bytes));
  }
  ASSIGN_OR_RETURN(const SocketAddress local, local_address(fd));
  if (local.storage.ss_family != AF_INET && local.storage.ss_family != AF_INET6) {
    return Status::ok();
  }
  RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1));
  RETURN_IF_ERROR(set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1));
  RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds));
  RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds));
  RETURN_IF_ERROR(set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kKeepCount));
  return set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUserTimeoutMs);
}

}  // namespace shoal::fabric

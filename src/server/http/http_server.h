// HttpServer: the sockets: accepts connections, reads requests, hands them to routes, sends
// answers.
//
// HTTP/1.1 with keep-alive, pipelining, chunked bodies both ways and Expect: 100-continue. One
// thread serves all sockets and runs quick routes; a few more run the others. Everything that a
// client sends or does not take has a bound and a deadline (HttpOptions).
// Thread rule: every method from any thread but the server's own; drain() and the destructor once.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/status.h"
#include "server/access/access.h"
#include "server/http/router.h"

namespace shoal::server {

// PEM files; empty: the connections are not encrypted.
struct TlsFiles {
  std::string certificate{};  // with the chain behind it
  std::string key{};
};

struct HttpOptions {
  // Connections beyond connections_max that are told so; more are closed unanswered.
  static constexpr size_t kTurnedAwayMax = 64;

  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any free one
  TlsFiles tls{};
  size_t header_bytes_max = 32768;
  size_t body_bytes_max = size_t{8} * 1024 * 1024;
  size_t stream_bytes_max = size_t{256} * 1024;  // of a stream that its reader has not taken
  size_t connections_max = 1024;
  size_t handler_threads = 4;
  Nanoseconds idle_deadline{std::chrono::seconds(75)};    // between requests
  Nanoseconds header_deadline{std::chrono::seconds(10)};  // first to last byte of a header
  Nanoseconds body_deadline{std::chrono::seconds(120)};   // of a body, as a whole
  Nanoseconds write_deadline{std::chrono::seconds(60)};   // a reader that takes nothing
  Nanoseconds heartbeat_interval{std::chrono::seconds(10)};
  // Each answer's route (its pattern, never what the client wrote), status and duration; on the
  // thread of the sockets. May be empty.
  std::function<void(std::string_view route, int status, double seconds)> on_answer{};
};

// Whether only this machine can reach this address or name. kRequest where it is neither.
Result<bool> is_loopback_host(const std::string& host);

class HttpServer {
 public:
  // Listens from now on. kRequest with the remedy when the port is in use or not allowed, or the
  // address is not of this machine.
  static Result<std::unique_ptr<HttpServer>> listen(HttpOptions options, Router router,
                                                    Access access);
  // Cuts off what drain() has not let end.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  std::string url() const;  // "http://127.0.0.1:8080", or https
  size_t connections() const;

  // Takes no new connection and no new request, and waits until all answers under way are sent;
  // connections that have just been made are told 503. kBusy when the deadline came first; those
  // left are cut off.
  Status drain(const Deadline& deadline);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace shoal::server

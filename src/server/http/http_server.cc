#include "server/http/http_server.h"

#include <fmt/format.h>

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <tuple>
#include <utility>

#include "base/log.h"
#include "base/os/thread.h"
#include "server/http/connection.h"
#include "server/http/workers.h"

namespace shoal::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
// Without a descriptor left, accept() fails at once and would do so in a circle.
constexpr Nanoseconds kAcceptPause = std::chrono::milliseconds(100);

Result<asio::ip::address> resolve(const std::string& host) {
  boost::system::error_code error;
  const asio::ip::address literal = asio::ip::make_address(host, error);
  if (!error) return literal;
  asio::io_context context;
  tcp::resolver resolver(context);
  const auto found = resolver.resolve(host, "0", tcp::resolver::passive, error);
  if (error || found.empty()) {
    return Status::request(fmt::format(
        "--host {} is no address and no name that is known here; give one such as 127.0.0.1",
        host));
  }
  for (const auto& entry : found) {
    if (entry.endpoint().address().is_v4()) return entry.endpoint().address();
  }
  return found.begin()->endpoint().address();
}

std::string address_text(const asio::ip::address& address) {
  return address.is_v6() ? "[" + address.to_string() + "]" : address.to_string();
}

Status listen_failed(const tcp::endpoint& endpoint, const boost::system::error_code& error) {
  const std::string where =
      fmt::format("port {} of {}", endpoint.port(), endpoint.address().to_string());
  if (error == asio::error::address_in_use) {
    return Status::request(where + " is in use by another program; give another --port");
  }
  if (error == asio::error::access_denied) {
    return Status::request(where + " needs the rights of root; give a --port above 1023");
  }
  return Status::request(
      fmt::format("cannot listen on {}: {}; give another --host", where, error.message()));
}

}  // namespace

Result<bool> is_loopback_host(const std::string& host) {
  ASSIGN_OR_RETURN(const asio::ip::address address, resolve(host));
  return address.is_loopback();
}

class HttpServer::Impl {
 public:
  Impl(HttpOptions options, Router router, Access access)
      : host_{.options = std::move(options),
              .router = std::move(router),
              .access = std::move(access)},
        context_(1),
        acceptor_(context_),
        accept_pause_(context_),
        work_(asio::make_work_guard(context_)) {}

  ~Impl() {
    if (thread_.joinable()) {
      // A route that never answers would keep this waiting: routes are bounded by those who wrote
      // them, connections are cut here.
      asio::post(context_, [this] {
        stop_accepting();
        for (Connection* connection : connections_) connection->cut();
      });
      work_.reset();
      thread_.join();
    }
    workers_ = nullptr;
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status listen() {
    ASSIGN_OR_RETURN(streams_, ByteStreams::create(host_.options.tls));
    ASSIGN_OR_RETURN(const asio::ip::address address, resolve(host_.options.host));
    const tcp::endpoint endpoint(address, host_.options.port);
    boost::system::error_code error;
    std::ignore = acceptor_.open(endpoint.protocol(), error);
    if (!error) std::ignore = acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
    if (!error) std::ignore = acceptor_.bind(endpoint, error);
    if (!error) std::ignore = acceptor_.listen(asio::socket_base::max_listen_connections, error);
    if (error) return listen_failed(endpoint, error);
    local_ = acceptor_.local_endpoint(error);
    ASSIGN_OR_RETURN(workers_, Workers::start(host_.options.handler_threads));
    host_.workers = workers_.get();
    asio::co_spawn(context_, accept(), asio::detached);
    ASSIGN_OR_RETURN(thread_, start_thread([this] { context_.run(); }));
    return Status::ok();
  }

  uint16_t port() const { return local_.port(); }
  std::string url() const {
    return fmt::format("{}://{}:{}", streams_->is_encrypted() ? "https" : "http",
                       address_text(local_.address()), local_.port());
  }
  size_t connections() const {
    const std::lock_guard lock(mutex_);
    return open_;
  }

  Status drain(const Deadline& deadline) {
    asio::post(context_, [this] {
      for (Connection* connection : connections_) connection->drain();
      stop_accepting();
    });
    std::unique_lock lock(mutex_);
    const bool is_done =
        closed_.wait_for(lock, deadline.left(), [this] { return has_stopped_ && open_ == 0; });
    if (is_done) return Status::ok();
    const size_t left = open_;
    lock.unlock();
    asio::post(context_, [this] {
      for (Connection* connection : connections_) connection->cut();
    });
    return Status::busy(
        fmt::format("{} connections were cut off before their answers ended", left));
  }

 private:
  void stop_accepting() {
    is_draining_ = true;
    boost::system::error_code error;
    // Those that the system has let in already are told; closing would only break them off.
    std::ignore = acceptor_.non_blocking(true, error);
    for (size_t i = 0; !error && i < HttpOptions::kTurnedAwayMax; ++i) {
      tcp::socket socket(context_);
      std::ignore = acceptor_.accept(socket, error);
      if (!error) take(std::move(socket));
    }
    std::ignore = acceptor_.close(error);
    accept_pause_.cancel();
  }

  asio::awaitable<void> accept() {
    while (acceptor_.is_open()) {
      auto [error, socket] = co_await acceptor_.async_accept(kTuple);
      if (error == asio::error::operation_aborted) continue;
      if (error) {
        LOG(warn, "cannot accept a connection: {}", error.message());
        accept_pause_.expires_after(kAcceptPause);
        co_await accept_pause_.async_wait(kTuple);
        continue;
      }
      take(std::move(socket));
    }
    // Only now is there no connection that take() has not seen.
    const std::lock_guard lock(mutex_);
    has_stopped_ = true;
    closed_.notify_all();
  }

  // Why a new connection is not served.
  std::optional<ApiError> refusal() const {
    if (is_draining_) return shutting_down_error();
    if (connections_.size() - turned_away_ < host_.options.connections_max) return std::nullopt;
    return ApiError{.status = 503,
                    .message = "too many connections are open",
                    .type = "server_error",
                    .code = "overloaded",
                    .retry_after_seconds = 1};
  }

  void take(tcp::socket socket) {
    boost::system::error_code ignored;
    std::ignore = socket.set_option(tcp::no_delay(true), ignored);
    auto refused = refusal();
    if (refused && turned_away_ >= HttpOptions::kTurnedAwayMax) return;
    // Shared: its own coroutines keep it alive.
    auto connection = std::make_shared<Connection>(streams_->make(std::move(socket)),
                                                   context_.get_executor(), host_);
    const bool is_turned_away = refused.has_value();
    if (is_turned_away) {
      ++turned_away_;
      connection->turn_away(std::move(*refused));
    }
    connections_.insert(connection.get());
    {
      const std::lock_guard lock(mutex_);
      ++open_;
    }
    asio::co_spawn(context_, serve(std::move(connection), is_turned_away), asio::detached);
  }

  asio::awaitable<void> serve(std::shared_ptr<Connection> connection, bool is_turned_away) {
    co_await connection->run();
    connections_.erase(connection.get());
    if (is_turned_away) --turned_away_;
    const std::lock_guard lock(mutex_);
    --open_;
    closed_.notify_all();
  }

  ConnectionHost host_;
  std::unique_ptr<ByteStreams> streams_;
  std::unique_ptr<Workers> workers_;
  asio::io_context context_;
  tcp::acceptor acceptor_;
  asio::steady_timer accept_pause_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  tcp::endpoint local_;
  // Of the sockets' thread.
  std::set<Connection*> connections_;
  size_t turned_away_ = 0;  // of these
  bool is_draining_ = false;
  std::thread thread_;

  mutable std::mutex mutex_;
  std::condition_variable closed_;
  size_t open_ = 0;
  bool has_stopped_ = false;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::listen(HttpOptions options, Router router,
                                                       Access access) {
  auto impl = std::make_unique<Impl>(std::move(options), std::move(router), std::move(access));
  RETURN_IF_ERROR(impl->listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const { return impl_->port(); }
std::string HttpServer::url() const { return impl_->url(); }
size_t HttpServer::connections() const { return impl_->connections(); }
Status HttpServer::drain(const Deadline& deadline) { return impl_->drain(deadline); }

}  // namespace shoal::server

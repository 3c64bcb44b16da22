#include "server/http/byte_stream.h"

#include <fmt/format.h>
#include <poll.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <tuple>
#include <utility>

namespace shoal::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
using TlsStream = beast::ssl_stream<beast::tcp_stream>;

#ifdef POLLRDHUP
constexpr short kHangUp = POLLRDHUP;
#else
constexpr short kHangUp = 0;  // POLLHUP alone, which needs no asking
#endif

// What both kinds have in common.
template <typename Stream>
class StreamOf : public ByteStream {
 public:
  template <typename... Arguments>
  explicit StreamOf(Arguments&&... arguments) : stream_(std::forward<Arguments>(arguments)...) {}

  asio::awaitable<Outcome> read_some(asio::mutable_buffer buffer,
                                     std::optional<Nanoseconds> time) override {
    limit(time);
    const auto [error, count] = co_await stream_.async_read_some(buffer, kTuple);
    co_return Outcome{.error = error, .count = count};
  }
  asio::awaitable<Outcome> discard_some(asio::mutable_buffer buffer, Nanoseconds time) override {
    limit(time);
    const auto [error, count] = co_await lowest().async_read_some(buffer, kTuple);
    co_return Outcome{.error = error, .count = count};
  }
  asio::awaitable<bool> write(asio::const_buffer bytes, Nanoseconds time) override {
    limit(time);
    const auto [error, count] = co_await asio::async_write(stream_, bytes, kTuple);
    co_return !error;
  }
  bool has_left() override {
    pollfd state{.fd = lowest().socket().native_handle(), .events = kHangUp, .revents = 0};
    return poll(&state, 1, 0) > 0;
  }
  void cancel() override { lowest().cancel(); }
  void close() override { lowest().close(); }

 protected:
  beast::tcp_stream& lowest() { return beast::get_lowest_layer(stream_); }
  // A read that is under way keeps the limit that it began with.
  void limit(std::optional<Nanoseconds> time) {
    if (time) {
      lowest().expires_after(*time);
    } else {
      lowest().expires_never();
    }
  }
  Stream stream_;
};

class PlainStream final : public StreamOf<beast::tcp_stream> {
 public:
  using StreamOf::StreamOf;
  asio::awaitable<bool> open(Nanoseconds) override { co_return true; }
  asio::awaitable<void> shut_down(Nanoseconds) override {
    beast::error_code ignored;
    std::ignore = stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    co_return;
  }
};

class EncryptedStream final : public StreamOf<TlsStream> {
 public:
  using StreamOf::StreamOf;
  asio::awaitable<bool> open(Nanoseconds time) override {
    limit(time);
    const auto [error] = co_await stream_.async_handshake(asio::ssl::stream_base::server, kTuple);
    co_return !error;
  }
  asio::awaitable<void> shut_down(Nanoseconds time) override {
    limit(time);
    (void)co_await stream_.async_shutdown(kTuple);
  }
};

class PlainStreams final : public ByteStreams {
 public:
  std::unique_ptr<ByteStream> make(tcp::socket socket) override {
    return std::make_unique<PlainStream>(std::move(socket));
  }
  bool is_encrypted() const override { return false; }
};

class EncryptedStreams final : public ByteStreams {
 public:
  std::unique_ptr<ByteStream> make(tcp::socket socket) override {
    return std::make_unique<EncryptedStream>(std::move(socket), context_);
  }
  bool is_encrypted() const override { return true; }

  Status load(const TlsFiles& files) {
    boost::system::error_code error;
    std::ignore =
        context_.set_options(asio::ssl::context::default_workarounds |
                                 asio::ssl::context::no_tlsv1 | asio::ssl::context::no_tlsv1_1,
                             error);
    // A key with a password would make OpenSSL ask for it on the terminal.
    std::ignore = context_.set_password_callback([](size_t, auto) { return std::string(); }, error);
    std::ignore = context_.use_certificate_chain_file(files.certificate, error);
    if (error) return unusable("--tls-cert", files.certificate, error);
    std::ignore = context_.use_private_key_file(files.key, asio::ssl::context::pem, error);
    if (error) return unusable("--tls-key", files.key, error);
    return Status::ok();
  }

 private:
  static Status unusable(std::string_view option, std::string_view path,
                         const boost::system::error_code& error) {
    return Status::request(fmt::format(
        "{} {} cannot be used: {}; it must be a PEM file without a password, and certificate and "
        "key must belong together",
        option, path, error.message()));
  }
  asio::ssl::context context_{asio::ssl::context::tls_server};
};

}  // namespace

Result<std::unique_ptr<ByteStreams>> ByteStreams::create(const TlsFiles& files) {
  if (files.certificate.empty()) return std::unique_ptr<ByteStreams>(new PlainStreams);
  auto streams = std::make_unique<EncryptedStreams>();
  RETURN_IF_ERROR(streams->load(files));
  return std::unique_ptr<ByteStreams>(std::move(streams));
}

}  // namespace shoal::server

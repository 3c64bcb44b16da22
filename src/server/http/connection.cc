#include "server/http/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <utility>

#include "base/log.h"

namespace shoal::server {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);
constexpr size_t kReadBytes = 16384;
// What a reader must take within the deadline of a write, however much there is.
constexpr size_t kWriteBytes = 65536;
// What a client that is refused may go on sending, and how long, in all and without a byte: closing
// at once would make its system throw the refusal away unread.
constexpr size_t kLingerBytesMax = size_t{64} << 20;
constexpr Nanoseconds kLingerMax = std::chrono::seconds(10);
constexpr Nanoseconds kLinger = std::chrono::seconds(1);
// For the first request of a client that is turned away.
constexpr Nanoseconds kTurnAwayMax = std::chrono::seconds(2);
// How often a client is looked for that has sent more than is read ahead, so that reading does not
// show its end.
constexpr Nanoseconds kLookAgain = std::chrono::milliseconds(100);

Request head_of(const http::request_parser<http::string_body>& parser) {
  const auto& message = parser.get();
  Request request{.method = std::string(message.method_string()),
                  .target = std::string(message.target()),
                  .headers = {},
                  .body = {}};
  for (const auto& field : message) {
    request.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  }
  return request;
}

// What to say of bytes that are no request; none: nothing, the client went or was too slow.
std::optional<ApiError> describe(const beast::error_code& error, const HttpOptions& options) {
  if (error == http::error::header_limit || error == http::error::buffer_overflow) {
    return ApiError{
        .status = 431,
        .message = fmt::format("the header has more than {} bytes", options.header_bytes_max)};
  }
  if (error == http::error::body_limit) {
    return ApiError{
        .status = 413,
        .message = fmt::format("the body has more than {} bytes", options.body_bytes_max),
        .code = "request_too_large"};
  }
  if (error == http::error::bad_version) {
    return ApiError{.status = 505, .message = "this server speaks HTTP/1.1"};
  }
  if (error == http::error::end_of_stream || error == http::error::partial_message ||
      error.category() != make_error_code(http::error::bad_method).category()) {
    return std::nullopt;
  }
  return ApiError{.message = "this is no HTTP request: " + error.message()};
}

void add_chunk(std::string* text, std::string_view bytes) {
  *text += fmt::format("{:x}\r\n", bytes.size());
  *text += bytes;
  *text += "\r\n";
}

}  // namespace

// A class of its own, so that the header needs no parser.
class Connection::RequestParser : public http::request_parser<http::string_body> {};

Connection::Connection(std::unique_ptr<ByteStream> stream, asio::any_io_executor executor,
                       const ConnectionHost& host)
    : host_(host),
      stream_(std::move(stream)),
      executor_(std::move(executor)),
      buffer_(2 * host.options.header_bytes_max + kReadBytes),
      wake_(executor_),
      look_again_(executor_) {}

Connection::~Connection() {
  if (outbox_) {
    outbox_->detach();
    outbox_->set_gone();
  }
}

void Connection::turn_away(ApiError error) {
  turned_away_ = std::move(error);
  is_ending_ = true;
}

void Connection::drain() {
  if (!is_open_) turned_away_ = shutting_down_error();
  is_ending_ = true;
  if (is_idle_) stream_->cancel();
}

void Connection::cut() {
  is_ending_ = true;
  is_gone_ = true;
  stream_->close();
  wake_.cancel();
}

asio::awaitable<void> Connection::run() {
  const auto self = shared_from_this();
  if (!co_await stream_->open(within(host_.options.header_deadline))) is_gone_ = true;
  is_open_ = true;
  bool goes_on = !is_gone_ && (turned_away_.has_value() || !is_ending_);
  while (goes_on && co_await wait_for_request()) {
    goes_on = co_await serve_request() && !is_gone_ && !is_ending_;
  }
  co_await close();
}

Nanoseconds Connection::within(Nanoseconds time) const {
  return turned_away_ ? std::min(time, kTurnAwayMax) : time;
}

// Empty lines before a request are no part of it (RFC 9112, 2.2). True: something else is there.
bool Connection::skip_empty_lines() {
  const asio::const_buffer all = buffer_.data();
  std::string_view bytes(static_cast<const char*>(all.data()), all.size());
  while (bytes.starts_with("\r\n")) bytes.remove_prefix(2);
  buffer_.consume(all.size() - bytes.size());
  return !bytes.empty() && bytes != "\r";
}

asio::awaitable<bool> Connection::wait_for_request() {
  const Deadline deadline = Deadline::after(within(host_.options.idle_deadline));
  while (!skip_empty_lines()) {
    if (is_ending_ && !turned_away_) co_return false;
    is_idle_ = true;
    const auto read = co_await stream_->read_some(buffer_.prepare(kReadBytes), deadline.left());
    is_idle_ = false;
    if (read.error) co_return false;
    buffer_.commit(read.count);
  }
  co_return true;
}

std::optional<Response> Connection::refuse(const Request& request, std::string* tail) {
  if (turned_away_) return exchanged_.write_error(*turned_away_);
  const bool is_preflight =
      request.method == "OPTIONS" && find_header(request.headers, "access-control-request-method");
  if (is_preflight) {
    const auto refused = host_.access.refuse(request.headers, false);
    return refused ? exchanged_.write_error(*refused) : host_.access.preflight(request.headers);
  }
  Router::Match match = host_.router.find(request.method, request.path());
  exchanged_.route = match.route;
  const bool needs_key = match.route == nullptr || !match.route->is_public;
  if (auto refused = host_.access.refuse(request.headers, needs_key)) {
    return exchanged_.write_error(*refused);
  }
  if (match.route == nullptr) {
    Response response = exchanged_.write_error(match.error);
    if (!match.allowed.empty()) response.headers.push_back({"Allow", match.allowed});
    return response;
  }
  const auto expected = find_header(request.headers, "expect");
  if (expected && !equals_ignoring_case(*expected, "100-continue")) {
    return exchanged_.write_error({.status = 417, .message = "only 100-continue can be expected"});
  }
  *tail = std::move(match.tail);
  return std::nullopt;
}

asio::awaitable<beast::error_code> Connection::read_part(RequestParser& parser, Part part,
                                                         Nanoseconds time) {
  const Deadline deadline = Deadline::after(time);
  parser.eager(part == Part::kAll);
  for (;;) {
    while (buffer_.size() > 0) {
      beast::error_code error;
      const size_t used = parser.put(buffer_.data(), error);
      buffer_.consume(used);
      const bool is_done = part == Part::kHeader ? parser.is_header_done() : parser.is_done();
      if (error && error != http::error::need_more) co_return error;
      if (is_done) co_return beast::error_code();
      if (error || used == 0) break;
    }
    if (buffer_.size() + kReadBytes > buffer_.max_size()) co_return http::error::buffer_overflow;
    const auto read = co_await stream_->read_some(buffer_.prepare(kReadBytes), deadline.left());
    if (read.error) co_return read.error;
    buffer_.commit(read.count);
  }
}

asio::awaitable<bool> Connection::refuse_bytes(boost::system::error_code error) {
  has_unread_body_ = true;
  exchanged_.keeps_alive = false;
  const auto described = describe(error, host_.options);
  if (described) co_await send_whole(exchanged_.write_error(*described));
  co_return false;
}

asio::awaitable<bool> Connection::serve_request() {
  RequestParser parser;
  parser.header_limit(static_cast<uint32_t>(host_.options.header_bytes_max));
  parser.body_limit(host_.options.body_bytes_max);
  exchanged_ = {.started = SteadyClock::instance().now()};
  request_headers_.clear();
  auto error = co_await read_part(parser, Part::kHeader, within(host_.options.header_deadline));
  Request request = head_of(parser);  // with an error as far as it was read
  request_headers_ = request.headers;
  exchanged_.write_error = host_.router.errors_at(request.path());
  exchanged_.is_head = request.method == "HEAD";
  exchanged_.takes_chunks = parser.get().version() >= 11;
  exchanged_.keeps_alive = parser.get().keep_alive();
  has_unread_body_ = !parser.is_done();
  if (error) co_return co_await refuse_bytes(error);
  // Any other coding leaves open where the request ends, and what comes next could be read as one
  // of its own (RFC 9112, 6.1 and 6.3).
  const bool has_coding = find_header(request.headers, "transfer-encoding").has_value();
  if (has_coding && (!parser.chunked() || parser.get().version() < 11)) {
    has_unread_body_ = true;
    exchanged_.keeps_alive = false;
    co_return co_await send_whole(exchanged_.write_error(
        {.status = 501, .message = "Transfer-Encoding: only chunked is understood, of HTTP/1.1"}));
  }
  if (auto refusal = refuse(request, &request.tail)) {
    if (has_unread_body_) exchanged_.keeps_alive = false;
    co_return co_await send_whole(std::move(*refusal));
  }
  if (has_unread_body_ && find_header(request.headers, "expect") && exchanged_.takes_chunks &&
      !co_await send("HTTP/1.1 100 Continue\r\n\r\n")) {
    co_return false;
  }
  if (has_unread_body_) {
    error = co_await read_part(parser, Part::kAll, host_.options.body_deadline);
  }
  if (error) co_return co_await refuse_bytes(error);
  has_unread_body_ = false;
  request.body = std::move(parser.get().body());
  co_return co_await answer(std::move(request));
}

asio::awaitable<bool> Connection::answer(Request request) {
  is_gone_ = false;
  const auto wake = [weak = weak_from_this(), executor = executor_] {
    asio::post(executor, [weak] {
      if (const auto self = weak.lock()) self->wake_.cancel();
    });
  };
  outbox_ = std::make_shared<Outbox>(host_.options.stream_bytes_max, wake, exchanged_.write_error);
  const Route& route = *exchanged_.route;
  if (route.is_quick) {
    route.handler(std::move(request), make_exchange(outbox_));
  } else {
    // Shared: std::function wants what can be copied.
    host_.workers->post([&route, moved = std::make_shared<Request>(std::move(request)),
                         exchange = make_exchange(outbox_)]() mutable {
      route.handler(std::move(*moved), std::move(exchange));
    });
  }
  start_watching();
  const bool goes_on = co_await send_answer();
  outbox_->detach();
  outbox_->set_gone();
  co_await stop_watching();
  outbox_ = nullptr;
  co_return goes_on && !is_gone_;
}

asio::awaitable<bool> Connection::send_answer() {
  for (;;) {
    Outbox::Output output = outbox_->take();
    if (is_gone_) {
      report(499);  // nginx's number for a client that went before its answer
      co_return false;
    }
    if (output.whole) co_return co_await send_whole(std::move(*output.whole));
    if (output.head) {
      StreamHead head = std::move(*output.head);
      report(200);
      co_return co_await send_stream(std::move(head), std::move(output));
    }
    co_await wait(host_.options.heartbeat_interval);
  }
}

asio::awaitable<bool> Connection::send_whole(Response response) {
  report(response.status);
  host_.access.add_headers(request_headers_, &response.headers);
  const bool has_body = response.status != 204;
  std::string text =
      format_head({.status = response.status,
                   .content_type = response.content_type,
                   .content_length = has_body ? std::optional(response.body.size()) : std::nullopt,
                   .keeps_alive = exchanged_.keeps_alive && !is_ending_},
                  response.headers);
  const std::string_view body =
      has_body && !exchanged_.is_head ? std::string_view(response.body) : std::string_view();
  // A short body goes with its head, a long one is not copied.
  const std::string_view first = body.substr(0, kWriteBytes);
  text += first;
  if (!co_await send(text) || !co_await send(body.substr(first.size()))) co_return false;
  co_return exchanged_.keeps_alive && !is_ending_;
}

asio::awaitable<bool> Connection::send_stream(StreamHead head, Outbox::Output first) {
  std::vector<Header> headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  host_.access.add_headers(request_headers_, &headers);
  const bool is_chunked = exchanged_.takes_chunks;
  const bool keeps_alive = exchanged_.keeps_alive && is_chunked && !is_ending_;
  std::string text = format_head({.content_type = head.content_type,
                                  .content_length = std::nullopt,
                                  .is_chunked = is_chunked,
                                  .keeps_alive = keeps_alive},
                                 headers);
  for (Outbox::Output output = std::move(first);; output = outbox_->take()) {
    if (is_gone_) co_return false;
    if (!output.bytes.empty() && is_chunked) add_chunk(&text, output.bytes);
    if (!output.bytes.empty() && !is_chunked) text += output.bytes;
    if (output.is_finished && is_chunked) text += "0\r\n\r\n";
    if (!text.empty() && !co_await send(std::exchange(text, {}))) co_return false;
    if (output.is_finished) co_return keeps_alive;
    if (output.is_aborted) co_return false;
    if (!output.is_empty()) continue;
    const bool is_quiet = !co_await wait(host_.options.heartbeat_interval);
    if (is_quiet && !head.heartbeat.empty()) {
      if (is_chunked) {
        add_chunk(&text, head.heartbeat);
      } else {
        text = head.heartbeat;
      }
    }
  }
}

asio::awaitable<bool> Connection::send(std::string_view text) {
  while (!text.empty() && !is_gone_) {
    const std::string_view piece = text.substr(0, kWriteBytes);
    text.remove_prefix(piece.size());
    if (!co_await stream_->write(asio::buffer(piece), host_.options.write_deadline)) {
      is_gone_ = true;
    }
  }
  co_return !is_gone_;
}

asio::awaitable<bool> Connection::wait(Nanoseconds time) {
  wake_.expires_after(time);
  const auto [error] = co_await wake_.async_wait(kTuple);
  co_return error == asio::error::operation_aborted;
}

void Connection::start_watching() {
  wants_watch_ = true;
  is_watching_ = true;
  asio::co_spawn(executor_, watch_client(), asio::detached);
}

void Connection::note_client_left() {
  is_gone_ = true;
  outbox_->set_gone();
}

// Bytes that come are the next request's: they are kept, up to a bound. Behind it the client's end
// is asked for, which is seen as far as the system has room for what is not read.
asio::awaitable<void> Connection::watch_client() {
  const auto self = shared_from_this();
  while (wants_watch_ && !is_gone_) {
    if (buffer_.size() + kReadBytes > buffer_.max_size()) {
      if (stream_->has_left()) {
        note_client_left();
      } else {
        look_again_.expires_after(kLookAgain);
        co_await look_again_.async_wait(kTuple);
      }
      continue;
    }
    const auto read = co_await stream_->read_some(buffer_.prepare(kReadBytes), std::nullopt);
    if (!read.error) buffer_.commit(read.count);
    if (read.error && read.error != asio::error::operation_aborted) note_client_left();
  }
  is_watching_ = false;
  wake_.cancel();
}

asio::awaitable<void> Connection::stop_watching() {
  wants_watch_ = false;
  while (is_watching_) {
    stream_->cancel();
    look_again_.cancel();
    co_await wait(kLinger);
  }
}

asio::awaitable<void> Connection::discard_rest() {
  std::string trash(kWriteBytes, '\0');
  const Nanoseconds begun = SteadyClock::instance().now();
  for (size_t total = 0; total < kLingerBytesMax;) {
    const Nanoseconds end = begun + (is_ending_ ? kLinger : kLingerMax);
    const Nanoseconds time = std::min(end - SteadyClock::instance().now(), kLinger);
    if (time.count() <= 0) break;
    const auto read = co_await stream_->discard_some(asio::buffer(trash), time);
    if (read.error) break;
    total += read.count;
  }
}

asio::awaitable<void> Connection::close() {
  if (!is_gone_) co_await stream_->shut_down(kLinger);
  const bool has_unread = has_unread_body_ || buffer_.size() > 0;
  if (has_unread && !is_gone_) co_await discard_rest();
  stream_->close();
}

void Connection::report(int status) {
  const double seconds =
      std::chrono::duration<double>(SteadyClock::instance().now() - exchanged_.started).count();
  const std::string_view pattern =
      exchanged_.route ? std::string_view(exchanged_.route->pattern) : "none";
  LOG(info, "http {} {} {:.1f} ms", pattern, status, seconds * 1e3);
  if (host_.options.on_answer) host_.options.on_answer(pattern, status, seconds);
}

}  // namespace shoal::server

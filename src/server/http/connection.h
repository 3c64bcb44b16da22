// Connection: one client's socket, from accept to close; only http_server.cc uses it.
//
// A coroutine reads a request, hands it to its route, sends what the route's outbox holds, and
// starts anew. While an answer is under way a second one reads ahead, to see the client go.
// Thread rule: the thread of the sockets. Kept alive by its coroutines.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <memory>
#include <optional>
#include <string>

#include "server/http/byte_stream.h"
#include "server/http/http_server.h"
#include "server/http/outbox.h"
#include "server/http/workers.h"

namespace shoal::server {

// What all connections of a server share; outlives them.
struct ConnectionHost {
  HttpOptions options;
  Router router;
  Access access;
  Workers* workers = nullptr;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::unique_ptr<ByteStream> stream, boost::asio::any_io_executor executor,
             const ConnectionHost& host);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // The whole life. Run it once, with the connection held by a shared_ptr meanwhile.
  boost::asio::awaitable<void> run();
  // Before run(): the first request, if it comes soon, is answered with this, and that is all.
  void turn_away(ApiError error);
  // No further request; ends at once when there is none.
  void drain();
  // Ends now.
  void cut();

 private:
  // How the request that is being served wants its answer.
  struct Exchanged {
    const Route* route = nullptr;  // null: refused before one was found
    ErrorWriter write_error = error_response;
    bool is_head = false;
    bool takes_chunks = true;
    bool keeps_alive = true;
    Nanoseconds started{0};
  };
  // Of a deadline, what one that is turned away gets.
  Nanoseconds within(Nanoseconds time) const;
  boost::asio::awaitable<bool> wait_for_request();
  bool skip_empty_lines();
  boost::asio::awaitable<bool> serve_request();
  // Feeds the parser up to the end of the header, or of the whole request.
  enum class Part { kHeader, kAll };
  class RequestParser;
  boost::asio::awaitable<boost::system::error_code> read_part(RequestParser& parser, Part part,
                                                              Nanoseconds time);
  // Answers what is no request, or too large a one; gives false, as the others do at the end.
  boost::asio::awaitable<bool> refuse_bytes(boost::system::error_code error);
  // The head was read: why this request is answered without its route.
  std::optional<Response> refuse(const Request& request, std::string* tail);
  boost::asio::awaitable<bool> answer(Request request);
  boost::asio::awaitable<bool> send_answer();
  boost::asio::awaitable<bool> send_whole(Response response);
  boost::asio::awaitable<bool> send_stream(StreamHead head, Outbox::Output first);
  // In pieces, each with the deadline. Borrows the text.
  boost::asio::awaitable<bool> send(std::string_view text);
  // False: the time is over. True: something may have happened.
  boost::asio::awaitable<bool> wait(Nanoseconds time);
  boost::asio::awaitable<void> watch_client();
  boost::asio::awaitable<void> stop_watching();
  boost::asio::awaitable<void> discard_rest();
  boost::asio::awaitable<void> close();
  void start_watching();
  void note_client_left();
  void report(int status);

  const ConnectionHost& host_;
  std::unique_ptr<ByteStream> stream_;
  boost::asio::any_io_executor executor_;
  boost::beast::flat_buffer buffer_;
  boost::asio::steady_timer wake_;
  boost::asio::steady_timer look_again_;  // of watch_client()
  std::shared_ptr<Outbox> outbox_;        // shared with the route; null between requests
  Exchanged exchanged_;
  std::vector<Header> request_headers_;
  std::optional<ApiError> turned_away_;
  bool is_open_ = false;
  bool is_idle_ = false;
  bool is_ending_ = false;
  bool is_gone_ = false;
  bool wants_watch_ = false;
  bool is_watching_ = false;
  bool has_unread_body_ = false;
};

}  // namespace shoal::server

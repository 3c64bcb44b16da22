// Outbox: an answer on its way from a route's thread to the connection that sends it.
//
// One is made for each request. The route writes through an Exchange (make_exchange), the
// connection takes what there is and is woken when there is more.
// Thread rule: any thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "server/api/error_response.h"
#include "server/http/exchange.h"

namespace shoal::server {

class Outbox {
 public:
  // wake: there is something to take. Called with a lock held: it must only signal. write_error:
  // writes what is answered where the route does not.
  Outbox(size_t stream_bytes_max, std::function<void()> wake,
         ErrorWriter write_error = error_response)
      : stream_bytes_max_(stream_bytes_max), write_error_(write_error), wake_(std::move(wake)) {}
  Outbox(const Outbox&) = delete;
  Outbox& operator=(const Outbox&) = delete;

  // The connection's side.
  struct Output {
    std::optional<Response> whole{};
    std::optional<StreamHead> head{};
    std::string bytes{};
    bool is_finished = false;  // the stream ended well after these bytes
    bool is_aborted = false;
    bool is_empty() const {
      return !whole && !head && bytes.empty() && !is_finished && !is_aborted;
    }
  };
  Output take();
  // The client has gone: from here on everything written is dropped.
  void set_gone();
  // The connection has what it needs, or has ended: wake is not called after this.
  void detach();

  // The route's side, by the rules of Exchange.
  void respond(Response response);
  void start_stream(StreamHead head);
  void write(std::string bytes);
  void finish();
  void abort();
  bool has_room() const;
  void set_callbacks(ExchangeCallbacks callbacks);
  // The route let go of it.
  void drop();

 private:
  enum class State { kEmpty, kStreaming, kEnded };
  void wake_locked();

  mutable std::mutex mutex_;
  const size_t stream_bytes_max_;
  const ErrorWriter write_error_;
  std::function<void()> wake_;
  ExchangeCallbacks callbacks_;
  Output output_;
  State state_ = State::kEmpty;
  bool is_gone_ = false;
  mutable bool was_full_ = false;  // has_room() said no, so on_room is owed
};

// The only way for a route to write; the outbox learns when it is dropped.
std::shared_ptr<Exchange> make_exchange(std::shared_ptr<Outbox> outbox);

}  // namespace shoal::server

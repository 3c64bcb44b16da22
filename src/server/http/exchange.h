// Exchange: where a route puts the answer to one request, whole or in pieces.
//
// A route calls respond() once, or start_stream(), write() any number of times, and finish() or
// abort(). Nothing here blocks: what is written is kept until the client takes it. A stream that
// has_room() no longer should wait for on_room; what is written nevertheless is still kept, so a
// writer that does not wait must know a bound of its own. An exchange that is dropped unanswered
// answers 500 by itself.
// Thread rule: any thread, one at a time, but the callbacks come from a thread of the server and
// must be quick; they may come during a call.
#pragma once

#include <functional>
#include <string>

#include "server/http/message.h"

namespace shoal::server {

struct ExchangeCallbacks {
  // The client has gone, or takes nothing any more: nobody will see what is written. At most once;
  // at once if it has gone already.
  std::function<void()> on_gone;
  // A stream has room again, after it had none.
  std::function<void()> on_room;
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void respond(Response response) = 0;
  virtual void start_stream(StreamHead head) = 0;
  virtual void write(std::string bytes) = 0;
  virtual void finish() = 0;
  // Ends a stream so that the client sees that it is not whole.
  virtual void abort() = 0;
  virtual bool has_room() const = 0;
  virtual void set_callbacks(ExchangeCallbacks callbacks) = 0;
};

}  // namespace shoal::server

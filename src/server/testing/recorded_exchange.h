// RecordedExchange: an Exchange without a socket, for tests of routes.
//
// Thread rule: any thread.
#pragma once

#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/http/exchange.h"

namespace shoal::server {

class RecordedExchange final : public Exchange {
 public:
  void respond(Response response) override;
  void start_stream(StreamHead head) override;
  void write(std::string bytes) override;
  void finish() override;
  void abort() override;
  bool has_room() const override;
  void set_callbacks(ExchangeCallbacks callbacks) override;

  // The client's side.
  void set_room(bool has_room);
  void leave();
  // Waits, at most ten seconds, until the answer is whole; CHECKs that it came.
  void wait();
  // Waits until `text` stands in what was streamed.
  void wait_for(std::string_view text);

  // After wait().
  int status() const;
  nlohmann::json json() const;                 // of a whole answer
  std::vector<nlohmann::json> events() const;  // of a stream, [DONE] left out
  // Of a stream whose events have names: these and their data.
  std::vector<std::pair<std::string, nlohmann::json>> named_events() const;
  std::string streamed() const;
  bool is_stream() const;
  bool was_aborted() const;
  Response response() const;

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  ExchangeCallbacks callbacks_;
  std::optional<Response> response_;
  std::string bytes_;
  bool is_stream_ = false;
  bool has_ended_ = false;
  bool was_aborted_ = false;
  bool has_room_ = true;
};

}  // namespace shoal::server

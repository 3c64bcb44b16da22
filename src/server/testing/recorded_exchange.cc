#include "server/testing/recorded_exchange.h"

#include <utility>

#include "base/check.h"

namespace shoal::server {
namespace {

constexpr std::chrono::seconds kPatience{10};

}  // namespace

void RecordedExchange::respond(Response response) {
  const std::lock_guard lock(mutex_);
  CHECK(!has_ended_ && !is_stream_);
  response_ = std::move(response);
  has_ended_ = true;
  changed_.notify_all();
}

void RecordedExchange::start_stream(StreamHead /*head*/) {
  const std::lock_guard lock(mutex_);
  CHECK(!has_ended_ && !is_stream_);
  is_stream_ = true;
}

void RecordedExchange::write(std::string bytes) {
  const std::lock_guard lock(mutex_);
  CHECK(is_stream_ && !has_ended_);
  bytes_ += bytes;
  changed_.notify_all();
}

void RecordedExchange::finish() {
  const std::lock_guard lock(mutex_);
  CHECK(is_stream_ && !has_ended_);
  has_ended_ = true;
  changed_.notify_all();
}

void RecordedExchange::abort() {
  was_aborted_ = true;
  finish();
}

bool RecordedExchange::has_room() const {
  const std::lock_guard lock(mutex_);
  return has_room_;
}

void RecordedExchange::set_callbacks(ExchangeCallbacks callbacks) {
  const std::lock_guard lock(mutex_);
  callbacks_ = std::move(callbacks);
}

void RecordedExchange::set_room(bool has_room) {
  std::function<void()> on_room;
  {
    const std::lock_guard lock(mutex_);
    has_room_ = has_room;
    if (has_room) on_room = callbacks_.on_room;
  }
  if (on_room) on_room();
}

void RecordedExchange::leave() {
  ExchangeCallbacks callbacks;
  {
    const std::lock_guard lock(mutex_);
    callbacks = std::exchange(callbacks_, {});
  }
  if (callbacks.on_gone) callbacks.on_gone();
}

void RecordedExchange::wait() {
  ExchangeCallbacks callbacks;  // let go of outside of the lock, as a connection does
  std::unique_lock lock(mutex_);
  CHECK_MSG(changed_.wait_for(lock, kPatience, [this] { return has_ended_; }), "no answer came");
  callbacks = std::exchange(callbacks_, {});
  lock.unlock();
}

void RecordedExchange::wait_for(std::string_view text) {
  std::unique_lock lock(mutex_);
  CHECK_MSG(
      changed_.wait_for(lock, kPatience, [&] { return bytes_.find(text) != std::string::npos; }),
      "the text was not streamed");
}

int RecordedExchange::status() const {
  const std::lock_guard lock(mutex_);
  return is_stream_ ? 200 : response_ ? response_->status : 0;
}

nlohmann::json RecordedExchange::json() const {
  return nlohmann::json::parse(response().body, nullptr, false);
}

std::vector<nlohmann::json> RecordedExchange::events() const {
  std::vector<nlohmann::json> events;
  const std::string text = streamed();
  constexpr std::string_view kData = "data: ";
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find("\n\n", at);
    CHECK(end != std::string::npos && text.compare(at, kData.size(), kData) == 0);
    const std::string data = text.substr(at + kData.size(), end - at - kData.size());
    if (data != "[DONE]") events.push_back(nlohmann::json::parse(data, nullptr, false));
    at = end + 2;
  }
  return events;
}

std::vector<std::pair<std::string, nlohmann::json>> RecordedExchange::named_events() const {
  constexpr std::string_view kName = "event: ";
  constexpr std::string_view kData = "\ndata: ";
  std::vector<std::pair<std::string, nlohmann::json>> events;
  const std::string text = streamed();
  for (size_t at = 0; at < text.size();) {
    const size_t line = text.find('\n', at);
    const size_t end = text.find("\n\n", at);
    CHECK(text.compare(at, kName.size(), kName) == 0);
    CHECK(end != std::string::npos && text.compare(line, kData.size(), kData) == 0);
    const size_t data = line + kData.size();
    events.emplace_back(text.substr(at + kName.size(), line - at - kName.size()),
                        nlohmann::json::parse(text.substr(data, end - data), nullptr, false));
    at = end + 2;
  }
  return events;
}

std::string RecordedExchange::streamed() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

bool RecordedExchange::is_stream() const {
  const std::lock_guard lock(mutex_);
  return is_stream_;
}

bool RecordedExchange::was_aborted() const {
  const std::lock_guard lock(mutex_);
  return was_aborted_;
}

Response RecordedExchange::response() const {
  const std::lock_guard lock(mutex_);
  CHECK_MSG(response_.has_value(), "there was no whole answer");
  return *response_;
}

}  // namespace shoal::server

#include "server/http/outbox.h"

#include <utility>

#include "base/check.h"

namespace shoal::server {
namespace {

class OutboxExchange final : public Exchange {
 public:
  explicit OutboxExchange(std::shared_ptr<Outbox> outbox) : outbox_(std::move(outbox)) {}
  ~OutboxExchange() override { outbox_->drop(); }
  OutboxExchange(const OutboxExchange&) = delete;
  OutboxExchange& operator=(const OutboxExchange&) = delete;

  void respond(Response response) override { outbox_->respond(std::move(response)); }
  void start_stream(StreamHead head) override { outbox_->start_stream(std::move(head)); }
  void write(std::string bytes) override { outbox_->write(std::move(bytes)); }
  void finish() override { outbox_->finish(); }
  void abort() override { outbox_->abort(); }
  bool has_room() const override { return outbox_->has_room(); }
  void set_callbacks(ExchangeCallbacks callbacks) override {
    outbox_->set_callbacks(std::move(callbacks));
  }

 private:
  // Shared with the connection: either side may end first.
  std::shared_ptr<Outbox> outbox_;
};

}  // namespace

std::shared_ptr<Exchange> make_exchange(std::shared_ptr<Outbox> outbox) {
  return std::make_shared<OutboxExchange>(std::move(outbox));
}

void Outbox::wake_locked() {
  if (wake_) wake_();
}

Outbox::Output Outbox::take() {
  Output taken;
  std::function<void()> on_room;
  {
    const std::lock_guard lock(mutex_);
    taken = std::exchange(output_, {});
    if (std::exchange(was_full_, false)) on_room = callbacks_.on_room;
  }
  if (on_room) on_room();
  return taken;
}

void Outbox::set_gone() {
  std::function<void()> on_gone;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_gone_, true)) return;
    output_ = {};
    on_gone = std::move(callbacks_.on_gone);
    callbacks_ = {};
    wake_locked();
  }
  if (on_gone) on_gone();
}

void Outbox::detach() {
  const std::lock_guard lock(mutex_);
  wake_ = nullptr;
}

void Outbox::respond(Response response) {
  const std::lock_guard lock(mutex_);
  CHECK(state_ == State::kEmpty);
  state_ = State::kEnded;
  if (is_gone_) return;
  output_.whole = std::move(response);
  wake_locked();
}

void Outbox::start_stream(StreamHead head) {
  const std::lock_guard lock(mutex_);
  CHECK(state_ == State::kEmpty);
  state_ = State::kStreaming;
  if (is_gone_) return;
  output_.head = std::move(head);
  wake_locked();
}

void Outbox::write(std::string bytes) {
  const std::lock_guard lock(mutex_);
  CHECK(state_ == State::kStreaming);
  if (is_gone_ || bytes.empty()) return;
  if (output_.bytes.empty()) {
    output_.bytes = std::move(bytes);
  } else {
    output_.bytes += bytes;
  }
  wake_locked();
}

void Outbox::finish() {
  const std::lock_guard lock(mutex_);
  CHECK(state_ == State::kStreaming);
  state_ = State::kEnded;
  if (is_gone_) return;
  output_.is_finished = true;
  wake_locked();
}

void Outbox::abort() {
  const std::lock_guard lock(mutex_);
  CHECK(state_ == State::kStreaming);
  state_ = State::kEnded;
  if (is_gone_) return;
  output_.is_aborted = true;
  wake_locked();
}

bool Outbox::has_room() const {
  const std::lock_guard lock(mutex_);
  if (is_gone_ || output_.bytes.size() < stream_bytes_max_) return true;
  was_full_ = true;
  return false;
}

void Outbox::set_callbacks(ExchangeCallbacks callbacks) {
  std::function<void()> on_gone;
  {
    const std::lock_guard lock(mutex_);
    if (is_gone_) {
      on_gone = std::move(callbacks.on_gone);
    } else {
      callbacks_ = std::move(callbacks);
    }
  }
  if (on_gone) on_gone();
}

void Outbox::drop() {
  ExchangeCallbacks callbacks;  // ends after the lock: what it holds may hold more exchanges
  const std::lock_guard lock(mutex_);
  callbacks = std::exchange(callbacks_, {});
  if (state_ == State::kEmpty && !is_gone_) {
    output_.whole = write_error_({.status = 500,
                                  .message = "the server gave no answer to this request",
                                  .type = "server_error"});
    wake_locked();
  } else if (state_ == State::kStreaming && !is_gone_) {
    output_.is_aborted = true;
    wake_locked();
  }
  state_ = State::kEnded;
}

}  // namespace shoal::server

#include "server/embed/embedding_batch.h"

#include <numeric>

#include "base/check.h"
#include "base/elapsed.h"

namespace shoal::server {

// The scheduler's way in: keeps the batch alive until its text has ended.
class EmbeddingBatch::Sink final : public runtime::EmbeddingSink {
 public:
  Sink(std::shared_ptr<EmbeddingBatch> batch, size_t index)
      : batch_(std::move(batch)), index_(index) {}
  void on_embedding(runtime::EmbeddingResult result) override {
    // The last reference may be this sink's own.
    const std::shared_ptr<EmbeddingBatch> batch = std::move(batch_);
    batch->on_result(index_, std::move(result));
  }

 private:
  std::shared_ptr<EmbeddingBatch> batch_;
  size_t index_;
};

EmbeddingBatch::EmbeddingBatch(const EmbeddingParts& parts,
                               std::vector<runtime::EmbeddingRequest> requests,
                               std::unique_ptr<EmbeddingReceiver> receiver)
    : parts_(parts),
      receiver_(std::move(receiver)),
      started_(SteadyClock::instance().now()),
      waiting_(requests.size()) {
  texts_.reserve(requests.size());
  for (runtime::EmbeddingRequest& request : requests) texts_.push_back({std::move(request)});
  std::iota(waiting_.begin(), waiting_.end(), size_t{0});
}

Result<std::shared_ptr<EmbeddingBatch>> EmbeddingBatch::start(
    const EmbeddingParts& parts, std::vector<runtime::EmbeddingRequest> requests,
    std::unique_ptr<EmbeddingReceiver> receiver) {
  CHECK(!requests.empty());
  std::shared_ptr<EmbeddingBatch> batch(
      new EmbeddingBatch(parts, std::move(requests), std::move(receiver)));
  if (const Status submitted = batch->submit_more(); !submitted.is_ok()) {
    batch->cancel();
    return submitted;
  }
  {
    const std::lock_guard lock(batch->mutex_);
    batch->is_open_ = true;
  }
  batch->schedule();
  return batch;
}

// Submits what may run now; one call at a time does it, for whoever else comes meanwhile. A full
// queue is waited for as long as a text of this batch runs, whose end tries again; any other
// refusal is returned.
Status EmbeddingBatch::submit_more() {
  std::unique_lock lock(mutex_);
  if (std::exchange(is_submitting_, true)) return Status::ok();
  while (!has_broken_off() && !waiting_.empty() && running_ < kAtOnceMax) {
    const size_t index = waiting_.front();
    waiting_.pop_front();
    ++running_;
    runtime::EmbeddingRequest request = texts_[index].request;  // a copy: it may be refused
    lock.unlock();
    request.sink = std::make_shared<Sink>(shared_from_this(), index);
    const auto id = parts_.generator.embed(std::move(request));
    lock.lock();
    if (!id.is_ok()) {
      --running_;
      waiting_.push_front(index);
      is_submitting_ = false;
      const bool is_full = id.status().code() == StatusCode::kBusy;
      return is_full && running_ > 0 ? Status::ok() : id.status();
    }
    texts_[index].id = *id;
    if (!has_broken_off() || texts_[index].has_ended) continue;
    lock.unlock();
    parts_.generator.cancel(*id);
    lock.lock();
  }
  is_submitting_ = false;
  return Status::ok();
}

// On the scheduler's thread.
void EmbeddingBatch::on_result(size_t index, runtime::EmbeddingResult result) {
  ChoiceEnd end{.status = result.status,
                .prompt_tokens = result.prompt_tokens,
                .seconds = seconds_between(started_, SteadyClock::instance().now()),
                .prefill_seconds = result.compute_seconds};
  if (result.is_cancelled) end.reason = FinishReason::kCancelled;
  if (!result.status.is_ok()) end.reason = FinishReason::kFailed;
  parts_.observer.on_embedding_end(end);
  {
    const std::lock_guard lock(mutex_);
    --running_;
    texts_[index].has_ended = true;
    if (!end.has_broken_off()) {
      end_.prompt_tokens += result.prompt_tokens;
      arrived_.emplace_back(index, std::move(result.values));
    }
  }
  if (end.has_broken_off()) break_off(end.reason, end.status);
  if (const Status submitted = submit_more(); !submitted.is_ok()) {
    break_off(FinishReason::kFailed, submitted);
  }
  schedule();
}

void EmbeddingBatch::cancel() { break_off(FinishReason::kCancelled, Status::ok()); }

// The first cause counts.
void EmbeddingBatch::break_off(FinishReason reason, const Status& status) {
  std::vector<runtime::RequestId> ids;
  {
    const std::lock_guard lock(mutex_);
    if (has_broken_off()) return;
    end_.reason = reason;
    end_.status = status;
    for (const Text& text : texts_) {
      if (text.id != 0 && !text.has_ended) ids.push_back(text.id);
    }
  }
  for (const runtime::RequestId id : ids) parts_.generator.cancel(id);
}

void EmbeddingBatch::schedule() {
  {
    const std::lock_guard lock(mutex_);
    if (!is_open_ || std::exchange(is_scheduled_, true)) return;
  }
  parts_.workers.post([self = shared_from_this()] { self->pump(); });
}

void EmbeddingBatch::pump() {
  std::vector<std::pair<size_t, std::vector<float>>> arrived;
  bool is_over = false;
  ChoiceEnd end;
  {
    const std::lock_guard lock(mutex_);
    is_scheduled_ = false;  // what comes from now on schedules the next one
    arrived.swap(arrived_);
    is_over = running_ == 0 && (waiting_.empty() || has_broken_off());
    end = end_;
  }
  for (auto& [index, values] : arrived) receiver_->on_embedding(index, std::move(values));
  if (!is_over || std::exchange(has_told_end_, true)) return;
  end.seconds = seconds_between(started_, SteadyClock::instance().now());
  receiver_->on_end(end);
}

}  // namespace shoal::server

#include "runtime/serve/scheduler.h"

#include <fmt/format.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.h"
#include "base/os/thread.h"
#include "runtime/serve/batcher.h"

namespace shoal::runtime {
namespace {

// An idle thread looks this often whether all ranks are still there.
constexpr Nanoseconds kIdleWait = std::chrono::milliseconds(500);
// After drain()'s deadline: for the step under way.
constexpr Nanoseconds kLastStep = std::chrono::minutes(10);

Status shut_down() { return Status::busy("shutting down: send the request elsewhere, or again"); }

}  // namespace

// Callers leave requests and cancellations in two lists; the thread takes them between steps. The
// batcher and the engine are the thread's alone.
class Scheduler::Impl {
 public:
  Impl(Engine& engine, const SchedulerOptions& options)
      : engine_(engine), options_(options), batcher_(engine, options) {
    batcher_.write_stats(&stats_);
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  Status begin() {
    ASSIGN_OR_RETURN(thread_, start_thread([this] { run(); }));
    return Status::ok();
  }

  template <typename Request>
  Result<RequestId> submit(Request request);
  void cancel(RequestId id);
  SchedulerStats stats() const;
  Status health() const {
    const std::lock_guard lock(mutex_);
    return broken_;
  }
  Status drain(const Deadline& deadline);
  const Engine& engine() const { return engine_; }

 private:
  struct Arrival {
    RequestId id = 0;
    std::variant<GenerationRequest, EmbeddingRequest> request;
    Nanoseconds submitted{0};
  };

  void run();
  void work(bool cut_off);
  void publish();
  bool is_idle() const { return !is_working_ && inbox_.empty() && unfinished_ == 0; }

  Engine& engine_;
  const SchedulerOptions options_;

  // The thread's.
  Batcher batcher_;
  std::vector<Arrival> arrivals_;
  std::vector<RequestId> cancelled_;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  std::condition_variable wake_;  // the thread
  std::condition_variable idle_;  // drain()
  std::vector<Arrival> inbox_;
  std::vector<RequestId> cancels_;
  RequestId last_id_ = 0;
  size_t waiting_ = 0;     // in inbox_ or queued, as far as is known
  size_t unfinished_ = 0;  // queued or running in the batcher
  bool is_working_ = false;
  bool is_draining_ = false;
  bool is_cut_off_ = false;
  bool is_ending_ = false;
  Status broken_;
  SchedulerStats stats_;

  std::thread thread_;
};

template <typename Request>
Result<RequestId> Scheduler::Impl::submit(Request request) {
  const Status good = batcher_.check(request);
  const std::lock_guard lock(mutex_);
  Status refusal = broken_.is_ok() ? good : broken_;
  if (refusal.is_ok() && (is_draining_ || is_ending_)) refusal = shut_down();
  if (refusal.is_ok() && waiting_ >= options_.queue_max) {
    refusal =
        Status::busy(fmt::format("{} requests are waiting already: try again later", waiting_));
  }
  if (!refusal.is_ok()) {
    ++stats_.requests_refused;
    return refusal;
  }
  ++stats_.requests_submitted;
  ++waiting_;
  inbox_.push_back({++last_id_, std::move(request), SteadyClock::instance().now()});
  wake_.notify_one();
  return last_id_;
}

void Scheduler::Impl::cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  if (id == 0 || id > last_id_) return;
  cancels_.push_back(id);
  wake_.notify_one();
}

SchedulerStats Scheduler::Impl::stats() const {
  const std::lock_guard lock(mutex_);
  SchedulerStats stats = stats_;
  stats.queued = waiting_;
  return stats;
}

Status Scheduler::Impl::drain(const Deadline& deadline) {
  std::unique_lock lock(mutex_);
  is_draining_ = true;
  if (idle_.wait_for(lock, deadline.left(), [&] { return is_idle(); })) return Status::ok();
  is_cut_off_ = true;
  wake_.notify_one();
  idle_.wait_for(lock, kLastStep, [&] { return is_idle(); });
  return Status::busy("requests were cut off: they did not end before the deadline");
}

void Scheduler::Impl::run() {
  std::unique_lock lock(mutex_);
  bool is_last = false;
  while (!is_last) {
    wake_.wait_for(lock, kIdleWait, [&] {
      return is_ending_ || !inbox_.empty() || !cancels_.empty() || !batcher_.is_idle();
    });
    arrivals_.swap(inbox_);
    cancelled_.swap(cancels_);
    is_working_ = true;
    is_last = is_ending_;
    const bool cut_off = is_cut_off_ || is_last;
    lock.unlock();
    work(cut_off);
    lock.lock();
    publish();
  }
}

void Scheduler::Impl::work(bool cut_off) {
  for (Arrival& arrival : arrivals_) {
    std::visit(
        [&](auto& request) { batcher_.add(arrival.id, std::move(request), arrival.submitted); },
        arrival.request);
  }
  for (const RequestId id : cancelled_) batcher_.cancel(id);
  arrivals_.clear();
  cancelled_.clear();
  if (cut_off) batcher_.end_all(shut_down());
  const bool was_broken = !batcher_.broken().is_ok();
  if (batcher_.is_idle()) {
    batcher_.look_at_engine();
  } else {
    (void)batcher_.step();
  }
  const Status& status = batcher_.broken();
  if (!status.is_ok() && !was_broken)
    LOG(error, "the engine serves no more: {}", status.to_string());
}

// With mutex_ held.
void Scheduler::Impl::publish() {
  is_working_ = false;
  batcher_.write_stats(&stats_);
  broken_ = batcher_.broken();
  waiting_ = inbox_.size() + batcher_.queued();
  unfinished_ = batcher_.queued() + stats_.running;
  if (is_idle()) idle_.notify_all();
}

Result<std::unique_ptr<Scheduler>> Scheduler::create(Engine& engine,
                                                     const SchedulerOptions& options) {
  if (options.queue_max == 0) return Status::request("queue_max is 0: must be at least 1");
  if (options.step_target.count() <= 0) return Status::request("step_target must be above 0");
  auto impl = std::make_unique<Impl>(engine, options);
  RETURN_IF_ERROR(impl->begin());
  return std::unique_ptr<Scheduler>(new Scheduler(std::move(impl)));
}

Scheduler::Scheduler(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Scheduler::~Scheduler() = default;
Result<RequestId> Scheduler::submit(GenerationRequest request) {
  return impl_->submit(std::move(request));
}
Result<RequestId> Scheduler::embed(EmbeddingRequest request) {
  return impl_->submit(std::move(request));
}
void Scheduler::cancel(RequestId id) { impl_->cancel(id); }
SchedulerStats Scheduler::stats() const { return impl_->stats(); }
Status Scheduler::health() const { return impl_->health(); }
Status Scheduler::drain(const Deadline& deadline) { return impl_->drain(deadline); }
size_t Scheduler::context() const { return impl_->engine().context(); }
size_t Scheduler::token_count() const { return impl_->engine().token_count(); }

}  // namespace shoal::runtime

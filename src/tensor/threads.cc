#include "tensor/threads.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/os/cpus.h"
#include "base/os/thread.h"
#include "base/spin_pause.h"
#include "tensor/aligned_buffer.h"
#include "tensor/cpu/kernels.h"

namespace shoal::tensor {
namespace {

// A pause takes 20 to 40 ns. Between two steps a worker spins so long for the next one, then
// sleeps.
constexpr int kPausesBetweenSteps = 2000;
// Inside a step it spins so long for the others, then yields. It never sleeps there: with one busy
// program beside two workers that was measured at 40 % of the speed of yielding, since the
// scheduler moves the other program, or the other worker, to the processor that falls idle.
constexpr int kPausesInStep = 4000;
// Both, when there are more threads than processors.
constexpr int kPausesCrowded = 32;

// A number that moves on, and threads that wait until it has.
class alignas(64) Gate {
 public:
  uint32_t position() const { return position_.load(std::memory_order_relaxed); }

  // What was written before is visible to whoever has waited.
  void move_on() {
    position_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) position_.notify_all();
  }

  // Both return once the position is no longer `seen`.
  void spin_or_yield(uint32_t seen, int pauses) const {
    if (spin(seen, pauses)) return;
    while (!spin(seen, 1)) std::this_thread::yield();
  }

  void spin_or_sleep(uint32_t seen, int pauses) {
    if (spin(seen, pauses)) return;
    // The sleeper is counted before it looks again, and move_on() looks at the count after it has
    // moved (both sequentially consistent): one of the two sees the other.
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    while (position_.load(std::memory_order_seq_cst) == seen) {
      position_.wait(seen, std::memory_order_acquire);
    }
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }

 private:
  bool spin(uint32_t seen, int pauses) const {
    for (int i = 0; i < pauses; ++i) {
      if (position_.load(std::memory_order_acquire) != seen) return true;
      spin_pause();
    }
    return false;
  }

  std::atomic<uint32_t> position_{0};
  std::atomic<int> sleepers_{0};
};

}  // namespace

// The state shared by the workers of one pool. The step gate publishes fn_ and context_ (or
// is_closing_); a step ends with a barrier of its own.
class WorkerPoolImpl {
 public:
  using StepFn = void (*)(void* context, Worker& me);

  WorkerPoolImpl(const WorkerPoolOptions& options, const Kernels& kernels);
  ~WorkerPoolImpl();

  [[nodiscard]] Status start();
  void run(StepFn fn, void* context);
  void barrier();
  [[nodiscard]] Status reserve_scratch(size_t bytes);

  int workers() const { return static_cast<int>(workers_.size()); }
  KernelPath path() const { return path_; }
  StepClock& clock() { return workers_[0].clock(); }
  TickScale tick_scale() const { return {created_, TickPoint::now()}; }

 private:
  void work(Worker& me);

  const TickPoint created_ = TickPoint::now();
  const KernelPath path_;
  const bool is_crowded_;
  std::vector<Worker> workers_;
  std::vector<AlignedBuffer> scratch_;
  std::vector<std::thread> threads_;

  // Written by run() before the step gate moves on, read by workers after.
  StepFn fn_ = nullptr;
  void* context_ = nullptr;
  bool is_closing_ = false;

  Gate step_gate_;
  Gate barrier_gate_;
  alignas(64) std::atomic<uint32_t> arrived_{0};
};

WorkerPoolImpl::WorkerPoolImpl(const WorkerPoolOptions& options, const Kernels& kernels)
    : path_(options.path),
      is_crowded_(std::max(options.threads_on_machine, options.workers) >
                  static_cast<int>(usable_cpus())),
      workers_(static_cast<size_t>(options.workers)),
      scratch_(static_cast<size_t>(options.workers)) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    workers_[i].index_ = static_cast<int>(i);
    workers_[i].count_ = options.workers;
    workers_[i].kernels_ = &kernels;
    workers_[i].pool_ = this;
  }
}

WorkerPoolImpl::~WorkerPoolImpl() {
  is_closing_ = true;
  step_gate_.move_on();
  for (std::thread& thread : threads_) thread.join();
}

Status WorkerPoolImpl::start() {
  threads_.reserve(workers_.size() - 1);
  for (size_t i = 1; i < workers_.size(); ++i) {
    Result<std::thread> thread = start_thread([this, i] { work(workers_[i]); });
    if (!thread.is_ok()) {
      return thread.status().with_context("worker thread " + std::to_string(i) + " of " +
                                          std::to_string(workers_.size() - 1));
    }
    threads_.push_back(std::move(*thread));
  }
  return Status::ok();
}

void WorkerPoolImpl::work(Worker& me) {
  const int pauses = is_crowded_ ? kPausesCrowded : kPausesBetweenSteps;
  for (uint32_t steps = 0;; ++steps) {
    step_gate_.spin_or_sleep(steps, pauses);
    if (is_closing_) return;
    me.clock_.enter(Phase::kOther);
    fn_(context_, me);
    me.clock_.enter(Phase::kIdle);
    barrier();
  }
}

void WorkerPoolImpl::run(StepFn fn, void* context) {
  fn_ = fn;
  context_ = context;
  step_gate_.move_on();
  const Phase before = workers_[0].clock_.enter(Phase::kOther);
  fn(context, workers_[0]);
  workers_[0].clock_.enter(Phase::kBarrier);
  barrier();
  workers_[0].clock_.enter(before);
}

void WorkerPoolImpl::barrier() {
  const auto count = static_cast<uint32_t>(workers_.size());
  if (count == 1) return;
  const uint32_t round = barrier_gate_.position();
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    arrived_.store(0, std::memory_order_relaxed);
    barrier_gate_.move_on();
    return;
  }
  barrier_gate_.spin_or_yield(round, is_crowded_ ? kPausesCrowded : kPausesInStep);
}

Status WorkerPoolImpl::reserve_scratch(size_t bytes) {
  for (size_t i = 0; i < workers_.size(); ++i) {
    if (scratch_[i].size() >= bytes) continue;
    ASSIGN_OR_RETURN(scratch_[i], AlignedBuffer::allocate(bytes));
    workers_[i].scratch_ = scratch_[i].bytes();
  }
  return Status::ok();
}

Range Worker::share(int64_t items, int64_t grain) const {
  const int64_t grains = (items + grain - 1) / grain;
  const int64_t begin = grains * index_ / count_;
  const int64_t end = grains * (index_ + 1) / count_;
  return {std::min(begin * grain, items), std::min(end * grain, items)};
}

void Worker::barrier(Phase phase) {
  if (count_ == 1) return;
  const Phase before = clock_.enter(phase);
  pool_->barrier();
  clock_.enter(before);
}

Result<std::unique_ptr<WorkerPool>> WorkerPool::create(const WorkerPoolOptions& options) {
  if (options.workers < 1 || options.workers > kWorkersMax) {
    return Status::request("a rank can have 1 to " + std::to_string(kWorkersMax) +
                           " threads, not " + std::to_string(options.workers));
  }
  if (!kernel_path_runs_here(options.path)) {
    return Status::request("this processor cannot run the kernel path '" +
                           std::string(kernel_path_name(options.path)) + "'");
  }
  auto impl = std::make_unique<WorkerPoolImpl>(options, kernels_for(options.path));
  std::unique_ptr<WorkerPool> pool(new WorkerPool(std::move(impl)));
  RETURN_IF_ERROR(pool->impl_->start());
  return pool;
}

WorkerPool::WorkerPool(std::unique_ptr<WorkerPoolImpl> impl) : impl_(std::move(impl)) {}

WorkerPool::~WorkerPool() = default;

int WorkerPool::workers() const { return impl_->workers(); }

KernelPath WorkerPool::path() const { return impl_->path(); }

StepClock& WorkerPool::clock() { return impl_->clock(); }

TickScale WorkerPool::tick_scale() const { return impl_->tick_scale(); }

Status WorkerPool::reserve_scratch(size_t bytes_per_worker) {
  return impl_->reserve_scratch(bytes_per_worker);
}

void WorkerPool::run_erased(StepFn fn, void* context) { impl_->run(fn, context); }

}  // namespace shoal::tensor

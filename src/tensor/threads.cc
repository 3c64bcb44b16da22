#include "tensor/threads.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/os/thread.h"
#include "base/spin_pause.h"
#include "tensor/aligned_buffer.h"
#include "tensor/cpu/kernels.h"

namespace shoal::tensor {
namespace {

// How long a worker spins for the next step before it sleeps.
constexpr Nanoseconds kSpinBeforeSleep{60'000};
// Pauses between two looks at the clock while it spins.
constexpr int kPausesPerLook = 64;
// Barrier: pauses before the first yield when every thread has a processor, and when not.
constexpr int kPausesBeforeYield = 4096;
constexpr int kPausesBeforeYieldCrowded = 32;

}  // namespace

// The state shared by the workers of one pool. step_ counts steps: moving it on publishes fn_ and
// context_ (or is_closing_); workers that have finished the step count up finished_.
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

 private:
  void work(Worker& me);
  // Returns the step number that follows `seen`.
  uint32_t await_step(uint32_t seen);
  void await_finish(uint32_t others);

  const KernelPath path_;
  const bool is_crowded_;
  std::vector<Worker> workers_;
  std::vector<AlignedBuffer> scratch_;
  std::vector<std::thread> threads_;

  // Written by run() before step_ moves on, read by workers after.
  StepFn fn_ = nullptr;
  void* context_ = nullptr;
  bool is_closing_ = false;

  alignas(64) std::atomic<uint32_t> step_{0};
  std::atomic<int> sleepers_{0};
  alignas(64) std::atomic<uint32_t> finished_{0};
  alignas(64) std::atomic<uint32_t> arrived_{0};
  alignas(64) std::atomic<uint32_t> barrier_round_{0};
};

WorkerPoolImpl::WorkerPoolImpl(const WorkerPoolOptions& options, const Kernels& kernels)
    : path_(options.path),
      is_crowded_(std::max(options.threads_on_machine, options.workers) > allowed_cpus()),
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
  step_.fetch_add(1, std::memory_order_seq_cst);
  step_.notify_all();
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
  for (uint32_t step = 0;;) {
    step = await_step(step);
    if (is_closing_) return;
    fn_(context_, me);
    finished_.fetch_add(1, std::memory_order_release);
  }
}

uint32_t WorkerPoolImpl::await_step(uint32_t seen) {
  const Clock& clock = SteadyClock::instance();
  const Nanoseconds until = clock.now() + (is_crowded_ ? Nanoseconds(0) : kSpinBeforeSleep);
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      const uint32_t step = step_.load(std::memory_order_acquire);
      if (step != seen) return step;
      spin_pause();
    }
  } while (clock.now() < until);
  // The sleeper is counted before it looks again, and run() looks at the count after it has moved
  // step_ on (both sequentially consistent): one of the two sees the other.
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  uint32_t step = step_.load(std::memory_order_seq_cst);
  while (step == seen) {
    step_.wait(seen, std::memory_order_acquire);
    step = step_.load(std::memory_order_acquire);
  }
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
  return step;
}

void WorkerPoolImpl::await_finish(uint32_t others) {
  const int limit = is_crowded_ ? kPausesBeforeYieldCrowded : kPausesBeforeYield;
  for (int i = 0; finished_.load(std::memory_order_acquire) != others; ++i) {
    i < limit ? spin_pause() : std::this_thread::yield();
  }
}

void WorkerPoolImpl::run(StepFn fn, void* context) {
  fn_ = fn;
  context_ = context;
  finished_.store(0, std::memory_order_relaxed);
  step_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) step_.notify_all();
  fn(context, workers_[0]);
  await_finish(static_cast<uint32_t>(workers_.size() - 1));
}

void WorkerPoolImpl::barrier() {
  const auto count = static_cast<uint32_t>(workers_.size());
  if (count == 1) return;
  const uint32_t round = barrier_round_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    arrived_.store(0, std::memory_order_relaxed);
    barrier_round_.store(round + 1, std::memory_order_release);
    return;
  }
  const int limit = is_crowded_ ? kPausesBeforeYieldCrowded : kPausesBeforeYield;
  for (int i = 0; barrier_round_.load(std::memory_order_acquire) == round; ++i) {
    i < limit ? spin_pause() : std::this_thread::yield();
  }
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

void Worker::barrier() { pool_->barrier(); }

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

Status WorkerPool::reserve_scratch(size_t bytes_per_worker) {
  return impl_->reserve_scratch(bytes_per_worker);
}

void WorkerPool::run_erased(StepFn fn, void* context) { impl_->run(fn, context); }

#ifdef __linux__
int allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (::sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}
#else
int allowed_cpus() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }
#endif

}  // namespace shoal::tensor

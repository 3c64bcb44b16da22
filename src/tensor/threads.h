// WorkerPool: the threads of one rank, which run a step together and sleep outside it.
//
// run(fn) executes fn(Worker&) once on every worker; the caller is worker 0. Inside a step workers
// take their share of an op by index() and count() and meet at barrier(), which spins and, when it
// takes long or there are more threads than processors, yields. Outside a step the workers spin for
// some tens of microseconds and then sleep: an idle pool uses no CPU.
// Thread rule: one thread calls run() at a time, never from inside a step. A step must call
// barrier() equally often on every worker. Memory written before a barrier is visible after it.
// A barrier waits for threads of this process only, so it has no deadline; whatever waits for a
// peer inside a step has one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>

#include "base/status.h"
#include "tensor/kernel_path.h"
#include "tensor/machine/step_clock.h"

namespace shoal::tensor {

struct Kernels;
class WorkerPoolImpl;

// A half-open range of items.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

class Worker {
 public:
  int index() const { return index_; }
  int count() const { return count_; }
  bool is_first() const { return index_ == 0; }
  // Returns once every worker of the step has come here. The wait counts for `phase`.
  void barrier(Phase phase = Phase::kBarrier);
  // This worker's contiguous part of `items`, cut at multiples of `grain`; may be empty.
  Range share(int64_t items, int64_t grain = 1) const;
  // The kernels of the pool's path.
  const Kernels& kernels() const { return *kernels_; }
  // This worker's own scratch memory, 64-byte aligned; see WorkerPool::reserve_scratch. An op may
  // overwrite all of it.
  std::span<std::byte> scratch() const { return scratch_; }
  // This worker's. Between steps it stands at kIdle.
  StepClock& clock() { return clock_; }

 private:
  friend class WorkerPoolImpl;
  WorkerPoolImpl* pool_ = nullptr;
  const Kernels* kernels_ = nullptr;
  std::span<std::byte> scratch_;
  int index_ = 0;
  int count_ = 1;
  alignas(64) StepClock clock_;
};

struct WorkerPoolOptions {
  int workers = 1;  // the caller's thread included; at least 1
  KernelPath path = best_kernel_path();
  int threads_on_machine = 0;  // of all ranks together when they share this machine; 0: only ours
};

class WorkerPool {
 public:
  static constexpr int kWorkersMax = 1024;

  // kRequest for a bad count or a path that does not run here; kNode when threads cannot be made.
  static Result<std::unique_ptr<WorkerPool>> create(const WorkerPoolOptions& options);
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  int workers() const;
  KernelPath path() const;
  // Of worker 0, for what its thread does outside a step.
  StepClock& clock();
  // From the ticks of the workers' clocks to seconds, as of now.
  TickScale tick_scale() const;

  // Outside a step: gives each worker at least this much scratch memory. kNode without memory.
  [[nodiscard]] Status reserve_scratch(size_t bytes_per_worker);

  // One step: fn(Worker&) on every worker; returns when all have finished. fn must not throw.
  template <typename Fn>
  void run(Fn&& fn) {
    run_erased([](void* context,
                  Worker& me) { (*static_cast<std::remove_reference_t<Fn>*>(context))(me); },
               const_cast<void*>(static_cast<const void*>(&fn)));
  }

 private:
  using StepFn = void (*)(void* context, Worker& me);

  explicit WorkerPool(std::unique_ptr<WorkerPoolImpl> impl);
  void run_erased(StepFn fn, void* context);

  std::unique_ptr<WorkerPoolImpl> impl_;
};

}  // namespace shoal::tensor

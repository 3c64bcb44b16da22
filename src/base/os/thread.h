// start_thread: a new thread, or why the machine has none left. run_bounded: a call that may block
// in the kernel, in a thread of its own, given up at a deadline.
//
// std::thread throws when it cannot start; this is the one place that catches it. Drivers have been
// seen to hang where no signal reaches them: what is given up goes on in its thread, which owns all
// that the call needs and its result.
// Thread rule: safe from any thread. The caller owns a started thread and joins or detaches it.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/status.h"

namespace shoal {

// kNode when no thread can be started; `run` is then never called.
Result<std::thread> start_thread(std::function<void()> run);

// What `call` returns. kBusy: it has not returned by the deadline; kNode: no thread can be started.
// `call` borrows nothing that may end before it.
template <typename T>
Result<T> run_bounded(std::function<T()> call, const Deadline& deadline) {
  struct Shared {
    std::function<T()> call;
    std::mutex mutex;
    std::condition_variable is_done;
    std::optional<T> result;
    bool is_given_up = false;
  };
  const auto shared = std::make_shared<Shared>();
  shared->call = std::move(call);
  Result<std::thread> thread = start_thread([shared] {
    std::optional<T> result(shared->call());
    shared->call = nullptr;
    const std::lock_guard lock(shared->mutex);
    if (!shared->is_given_up) shared->result.swap(result);
    shared->is_done.notify_all();
  });
  if (!thread.is_ok()) return thread.status();
  std::unique_lock lock(shared->mutex);
  shared->is_done.wait_for(lock, deadline.left(), [&] { return shared->result.has_value(); });
  shared->is_given_up = !shared->result.has_value();
  lock.unlock();
  if (shared->is_given_up) {
    thread->detach();
    return Status::busy("no answer before the deadline");
  }
  thread->join();
  return std::move(*shared->result);
}

}  // namespace shoal

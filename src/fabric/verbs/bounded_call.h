// run_bounded: a call that may block in the kernel, in a thread of its own, given up at a deadline.
//
// Drivers have been seen to hang in making or destroying a queue pair, where no signal reaches
// them. What is given up goes on in its thread, which owns all that the call needs and its result.
// Thread rule: safe from any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/clock.h"
#include "base/os/thread.h"

namespace shoal::fabric {

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

}  // namespace shoal::fabric

#include "server/http/workers.h"

#include <utility>

#include "base/os/thread.h"

namespace shoal::server {

Result<std::unique_ptr<Workers>> Workers::start(size_t threads) {
  std::unique_ptr<Workers> workers(new Workers);
  for (size_t i = 0; i < threads; ++i) {
    ASSIGN_OR_RETURN(std::thread thread, start_thread([self = workers.get()] { self->run(); }));
    workers->threads_.push_back(std::move(thread));
  }
  return workers;
}

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  posted_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::post(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    if (is_ending_) return;
    tasks_.push_back(std::move(task));
  }
  posted_.notify_one();
}

void Workers::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    // No deadline: an idle server waits for its next request for as long as it lives.
    posted_.wait(lock, [this] { return !tasks_.empty() || is_ending_; });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    task();
    task = nullptr;  // what it holds ends before the next one begins
    lock.lock();
  }
}

}  // namespace shoal::server

// Workers: a few threads that run tasks in the order in which they were posted.
//
// The destructor runs what was posted before it, then joins; tasks posted later are dropped.
// Thread rule: post() from any thread, also from a task.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "base/status.h"

namespace shoal::server {

class Workers {
 public:
  // kNode when there are no threads left.
  static Result<std::unique_ptr<Workers>> start(size_t threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void post(std::function<void()> task);

 private:
  Workers() = default;
  void run();

  std::mutex mutex_;
  std::condition_variable posted_;
  std::deque<std::function<void()>> tasks_;
  bool is_ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace shoal::server

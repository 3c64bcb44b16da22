// FileLock: at most one process (and one FileLock of a process) at a time holds a lock file.
//
// The kernel drops the lock when its holder dies. The file stays. Thread rule: one thread.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace shoal::model {

class FileLock {
 public:
  // Waits for the lock until the deadline, then kBusy. on_wait, if any, is called before each
  // further try, a few times a second.
  static Result<FileLock> acquire(const std::string& path, const Deadline& deadline,
                                  const std::function<void()>& on_wait);

 private:
  explicit FileLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace shoal::model

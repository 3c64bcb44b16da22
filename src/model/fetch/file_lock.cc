#include "model/fetch/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <thread>

namespace shoal::model {
namespace {
constexpr auto kRetryEvery = std::chrono::milliseconds(100);
}

Result<FileLock> FileLock::acquire(const std::string& path, const Deadline& deadline,
                                   const std::function<void()>& on_wait) {
  UniqueFd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!fd.is_valid()) return Status::from_errno("cannot open " + path, errno);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return Status::from_errno("cannot lock " + path, errno);
    }
    if (deadline.expired()) {
      return Status::busy(path +
                          " is held by another process, which does not finish: try again, "
                          "or end that process");
    }
    if (on_wait) on_wait();
    std::this_thread::sleep_for(kRetryEvery);
  }
  return FileLock(std::move(fd));
}

}  // namespace shoal::model

#include "base/os/descriptor_limit.h"

#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>

namespace shoal {
namespace {

// For what else is opened meanwhile: logs, sockets that listen, pipes to children.
constexpr size_t kSpare = 64;

// Those of this process; 0 where the system does not tell.
size_t open_descriptors() {
  std::error_code error;
  size_t count = 0;
  auto entry = std::filesystem::directory_iterator("/proc/self/fd", error);
  while (!error && entry != std::filesystem::directory_iterator()) {
    ++count;
    entry.increment(error);
  }
  return count;
}

}  // namespace

Status reserve_descriptors(size_t more) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return Status::from_errno("getrlimit", errno);
  const size_t needed = open_descriptors() + more + kSpare;
  if (limit.rlim_cur >= needed) return Status::ok();
  if (limit.rlim_max < needed) {
    return Status::node(std::to_string(needed) + " open files and sockets are needed, and " +
                        std::to_string(limit.rlim_max) +
                        " are allowed: raise the limit (ulimit -n) or start fewer ranks");
  }
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return Status::from_errno("setrlimit", errno);
  return Status::ok();
}

}  // namespace shoal

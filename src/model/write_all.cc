#include "model/write_all.h"

#include <unistd.h>

#include <cerrno>

namespace shoal::model {

Status write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == ENOSPC) {
      return Status::request(path + ": the disk is full: free some space");
    }
    if (written < 0) return Status::from_errno("cannot write " + path, errno);
    bytes = bytes.subspan(static_cast<size_t>(written));
  }
  return Status::ok();
}

}  // namespace shoal::model

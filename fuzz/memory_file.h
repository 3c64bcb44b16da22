// MemoryFile: bytes under a path, without a disk, for parsers that take a path.
//
// Thread rule: one thread.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <span>
#include <string>

#include "base/check.h"
#include "base/unique_fd.h"

namespace shoal::fuzz {

class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) { CHECK(fd_.is_valid()); }

  // Nobody may have the old bytes mapped.
  void set(std::span<const std::byte> bytes) {
    CHECK(::ftruncate(fd_.get(), 0) == 0);
    CHECK(::pwrite(fd_.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()));
  }
  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

 private:
  UniqueFd fd_;
};

}  // namespace shoal::fuzz

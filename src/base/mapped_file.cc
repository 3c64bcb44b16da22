#include "base/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <system_error>

#include "base/unique_fd.h"

namespace shoal {

Result<std::unique_ptr<MappedFile>> MappedFile::open(const std::string& path) {
  const auto refuse = [&](int errno_value) {
    return Status::request(path + ": " + std::generic_category().message(errno_value));
  };
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_valid()) return refuse(errno);
  struct stat info{};
  if (::fstat(fd.get(), &info) != 0) return refuse(errno);
  if (!S_ISREG(info.st_mode)) return Status::request(path + ": not a regular file");
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return std::unique_ptr<MappedFile>(new MappedFile(path, {}));
  void* start = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (start == MAP_FAILED) return refuse(errno);
  return std::unique_ptr<MappedFile>(
      new MappedFile(path, {static_cast<const std::byte*>(start), size}));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

}  // namespace shoal

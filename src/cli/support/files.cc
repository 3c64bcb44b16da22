#include "cli/support/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>

#include "base/unique_fd.h"
#include "cli/support/format.h"

namespace shoal::cli {
namespace {

Result<std::string> read_all(int fd, const std::string& what, size_t bytes_max) {
  std::string text;
  std::array<char, 65536> chunk{};
  for (;;) {
    const ssize_t count = ::read(fd, chunk.data(), chunk.size());
    if (count == 0) return text;
    if (count < 0) {
      if (errno == EINTR) continue;
      return Status::request(
          fmt::format("cannot read {}: {}", what, std::generic_category().message(errno)));
    }
    text.append(chunk.data(), static_cast<size_t>(count));
    if (text.size() > bytes_max) {
      return Status::request(
          fmt::format("{} has more than {}, which is the limit", what, format_bytes(bytes_max)));
    }
  }
}

}  // namespace

Result<std::string> read_file(const std::string& path, size_t bytes_max) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.is_valid()) {
    return Status::request(
        fmt::format("cannot open {}: {}", path, std::generic_category().message(errno)));
  }
  return read_all(file.get(), path, bytes_max);
}

Status check_writable(const std::string& path) {
  const UniqueFd file(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
  if (file.is_valid()) return Status::ok();
  return Status::request(
      fmt::format("cannot write {}: {}", path, std::generic_category().message(errno)));
}

Result<std::string> read_standard_input(size_t bytes_max) {
  return read_all(STDIN_FILENO, "standard input", bytes_max);
}

}  // namespace shoal::cli

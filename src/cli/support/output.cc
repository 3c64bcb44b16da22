#include "cli/support/output.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "base/check.h"

namespace shoal::cli {

Output::Output(int fd, std::string_view what)
    : fd_(fd), what_(what), is_terminal_(isatty(fd) == 1) {}

void Output::write(std::string_view text) {
  while (!text.empty() && !is_done()) {
    const ssize_t written = ::write(fd_, text.data(), text.size());
    if (written >= 0) {
      text.remove_prefix(static_cast<size_t>(written));
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN) {  // somebody made the descriptor non-blocking: a slow reader
      pollfd ready{.fd = fd_, .events = POLLOUT, .revents = 0};
      (void)poll(&ready, 1, 1000);
      continue;
    }
    if (errno == EPIPE) {
      is_closed_ = true;
      return;
    }
    status_ = Status::from_errno("cannot write to " + std::string(what_), errno);
  }
}

void Output::write_line(std::string_view text) {
  std::string line(text);
  line += '\n';
  write(line);
}

void hold_standard_descriptors() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // The lowest free number, and those below are taken. Children inherit it like any other.
    CHECK(open("/dev/null", O_RDONLY) == fd);  // NOLINT(android-cloexec-open)
  }
}

Console::Console() : out(STDOUT_FILENO, "standard output"), err(STDERR_FILENO, "standard error") {}

}  // namespace shoal::cli

#include "base/os/child_start.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string_view>

#include "base/check.h"
#include "base/unique_fd.h"

namespace shoal {
namespace {

// argv or envp: the strings live as long as this.
class StringList {
 public:
  explicit StringList(std::vector<std::string> strings) : strings_(std::move(strings)) {
    for (std::string& text : strings_) pointers_.push_back(text.data());
    pointers_.push_back(nullptr);
  }
  char* const* get() const { return pointers_.data(); }

 private:
  std::vector<std::string> strings_;
  std::vector<char*> pointers_;
};

// What the child needs until it executes; made before the fork, since nothing may be allocated
// after it.
struct Prepared {
  const char* path = nullptr;
  char* const* argv = nullptr;
  char* const* envp = nullptr;
  std::vector<ChildDescriptor> descriptors;  // theirs = 0, 1, 2, ...; the last one is the report's
  int death_signal = 0;
  bool ignores_interrupt = false;
  pid_t parent = -1;
};

// The file of a program named without a slash; the name itself where PATH has none.
std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  if (name.find('/') != std::string::npos || path == nullptr) return name;
  std::string_view left(path);
  while (!left.empty()) {
    const size_t end = std::min(left.find(':'), left.size());
    std::string file(end == 0 ? "." : left.substr(0, end));
    file += "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
    left.remove_prefix(std::min(end + 1, left.size()));
  }
  return name;
}

// In the child, between fork and exec: only async-signal-safe calls. `moved` has room for the
// descriptors.
[[noreturn]] void run_child(const Prepared& start, std::vector<int>& moved) {
  const int report = static_cast<int>(start.descriptors.size()) - 1;
  const auto give_up = [](int descriptor) {
    const int error = errno;
    (void)!write(descriptor, &error, sizeof(error));
    _exit(127);
  };
  const int report_now = start.descriptors.back().ours;
  if (prctl(PR_SET_PDEATHSIG, start.death_signal) != 0) give_up(report_now);
  // The parent may have ended before that call.
  if (getppid() != start.parent) _exit(127);
  if (start.ignores_interrupt) signal(SIGINT, SIG_IGN);
  signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // Above every fixed number first, so that no dup2 closes what the next one needs.
  for (size_t i = 0; i < moved.size(); ++i) {
    moved[i] = fcntl(start.descriptors[i].ours, F_DUPFD, report + 1);
    if (moved[i] < 0) give_up(report_now);
  }
  for (size_t i = 0; i < moved.size(); ++i) {
    if (dup2(moved[i], start.descriptors[i].theirs) < 0) give_up(moved.back());
  }
  if (fcntl(report, F_SETFD, FD_CLOEXEC) != 0) give_up(report);
  close_range(static_cast<unsigned>(report) + 1, ~0U, 0);
  execve(start.path, start.argv, start.envp);
  give_up(report);
  _exit(127);
}

}  // namespace

Result<pid_t> start_child(const ChildStart& start) {
  CHECK(!start.command.empty() && start.descriptors.size() >= 3);
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) return Status::from_errno("pipe", errno);
  UniqueFd report_read(pipe_fds[0]);
  UniqueFd report_write(pipe_fds[1]);
  const StringList argv(start.command);
  const StringList environment(start.environment);
  const std::string path = find_program(start.command[0]);
  Prepared prepared;
  prepared.path = path.c_str();
  prepared.argv = argv.get();
  prepared.envp = start.environment.empty() ? environ : environment.get();
  prepared.descriptors = start.descriptors;
  std::sort(prepared.descriptors.begin(), prepared.descriptors.end(),
            [](const ChildDescriptor& a, const ChildDescriptor& b) { return a.theirs < b.theirs; });
  const int report = static_cast<int>(prepared.descriptors.size());
  for (int i = 0; i < report; ++i) CHECK(prepared.descriptors[static_cast<size_t>(i)].theirs == i);
  prepared.descriptors.push_back({.ours = report_write.get(), .theirs = report});
  prepared.death_signal = start.death_signal;
  prepared.ignores_interrupt = start.ignores_interrupt;
  prepared.parent = getpid();
  std::vector<int> moved(prepared.descriptors.size());
  const pid_t pid = fork();
  if (pid < 0) return Status::from_errno("fork", errno);
  if (pid == 0) run_child(prepared, moved);
  report_write.reset();
  int error = 0;
  ssize_t done = 0;
  do {
    done = read(report_read.get(), &error, sizeof(error));
  } while (done < 0 && errno == EINTR);
  if (done == 0) return pid;
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  Status status = Status::from_errno("cannot run " + start.command[0], error);
  if (error != ENOENT && error != EACCES && error != ENOEXEC) return status;
  return Status::request(status.message());
}

}  // namespace shoal

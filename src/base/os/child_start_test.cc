#include "base/os/child_start.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace shoal {
namespace {

using testing::HasSubstr;

// Starts a command with its output into a pipe.
class Started {
 public:
  explicit Started(std::vector<std::string> command, std::vector<std::string> environment = {}) {
    ChildStart start;
    start.command = std::move(command);
    start.environment = std::move(environment);
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    output_ = UniqueFd(ends[0]);
    const UniqueFd write_end(ends[1]);
    const UniqueFd null_fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    start.descriptors = {{write_end.get(), 1}, {null_fd.get(), 0}, {write_end.get(), 2}};
    pid_ = start_child(start);
  }
  const Result<pid_t>& pid() const { return pid_; }
  // All that it writes until it has ended.
  std::string output() {
    std::string text;
    char buffer[256];
    ssize_t count = 0;
    while ((count = read(output_.get(), buffer, sizeof(buffer))) > 0) {
      text.append(buffer, static_cast<size_t>(count));
    }
    EXPECT_EQ(waitpid(*pid_, &wait_status_, 0), *pid_);
    return text;
  }
  int wait_status() const { return wait_status_; }

 private:
  UniqueFd output_;
  Result<pid_t> pid_ = Status::busy("not started");
  int wait_status_ = 0;
};

TEST(StartChild, AProgramOfThePathGetsItsArgumentsAndEnvironment) {
  Started child({"sh", "-c", "echo \"$0 $SHOAL_WORD\"; exit 3", "first"}, {"SHOAL_WORD=second"});
  ASSERT_TRUE(child.pid().is_ok()) << child.pid().status().message();
  EXPECT_EQ(child.output(), "first second\n");
  EXPECT_EQ(WEXITSTATUS(child.wait_status()), 3);
}

TEST(StartChild, NothingButItsDescriptorsIsOpen) {
  const UniqueFd leaky(open("/dev/null", O_RDONLY));  // without O_CLOEXEC
  // The shell's glob holds one of its own.
  Started child({"/bin/sh", "-c", "ls /proc/$$/fd"});
  ASSERT_TRUE(child.pid().is_ok()) << child.pid().status().message();
  EXPECT_EQ(child.output(), "0\n1\n2\n");
}

TEST(StartChild, AProgramThatIsNotThereIsARequestError) {
  for (const char* name : {"/no/such/program", "no-such-program", "/etc/passwd"}) {
    Started child({name});
    ASSERT_EQ(child.pid().status().code(), StatusCode::kRequest) << name;
    EXPECT_THAT(child.pid().status().message(), HasSubstr(std::string("cannot run ") + name));
  }
}

TEST(StartChild, ItEndsWithTheThreadThatStartedIt) {
  pid_t pid = -1;
  std::thread([&pid] {
    Started child({"sleep", "600"});
    ASSERT_TRUE(child.pid().is_ok()) << child.pid().status().message();
    pid = *child.pid();
  }).join();
  ASSERT_GT(pid, 0);
  int wait_status = 0;
  ASSERT_EQ(waitpid(pid, &wait_status, 0), pid);
  EXPECT_TRUE(WIFSIGNALED(wait_status));
  EXPECT_EQ(WTERMSIG(wait_status), SIGKILL);
}

}  // namespace
}  // namespace shoal

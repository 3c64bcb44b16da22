#include "cli/support/progress_bar.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <sstream>

#include "base/unique_fd.h"

namespace shoal::cli {
namespace {

// What is written where no terminal is.
class Pipe {
 public:
  Pipe() {
    std::array<int, 2> ends{};
    EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
    from_.reset(ends[0]);
    to_.reset(ends[1]);
  }
  int end() const { return to_.get(); }
  // All that was written; closes it.
  std::vector<std::string> lines() {
    to_.reset();
    std::array<char, 4096> text{};
    const ssize_t count = read(from_.get(), text.data(), text.size());
    std::istringstream stream(
        std::string(text.data(), static_cast<size_t>(std::max<ssize_t>(count, 0))));
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

 private:
  UniqueFd from_;
  UniqueFd to_;
};

TEST(ProgressBar, WithoutATerminalSaysWhatStartsAndWhatIsDone) {
  Pipe pipe;
  Output output(pipe.end(), "a pipe");
  ProgressBar bar(output, {.label = "loading m", .total = 100});
  bar.update(50);
  bar.finish();
  bar.finish();
  EXPECT_THAT(pipe.lines(),
              testing::ElementsAre("loading m", testing::StartsWith("loading m: done in ")));
}

TEST(ProgressBar, WithoutATerminalALongJobSaysHowFarItIs) {
  Pipe pipe;
  Output output(pipe.end(), "a pipe");
  {
    ProgressBar bar(output, {.label = "loading m", .total = 4000, .line_interval = {}});
    bar.update(1000);
    bar.set_total(0);
    bar.update(2000);
  }
  EXPECT_EQ(pipe.lines(),
            (std::vector<std::string>{"loading m", "loading m: 25 %, 1.00 kB of 4.00 kB",
                                      "loading m: 2.00 kB"}));
}

TEST(ProgressBar, QuietSaysNothing) {
  Pipe pipe;
  Output output(pipe.end(), "a pipe");
  ProgressBar bar(output, {.label = "loading m", .total = 1, .is_quiet = true});
  bar.update(1);
  bar.finish();
  EXPECT_TRUE(pipe.lines().empty());
}

}  // namespace
}  // namespace shoal::cli

#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "cli/chat/line_source.h"
#include "cli/support/signals.h"

namespace shoal::cli {
namespace {

constexpr size_t kLineBytesMax = size_t{16} * 1024 * 1024;

class PipeLines final : public LineSource {
 public:
  Line read(const std::string& /*prompt*/) override {
    for (;;) {
      const size_t end = buffer_.find('\n');
      if (end != std::string::npos) {
        Line line{.kind = LineKind::kLine, .text = buffer_.substr(0, end)};
        buffer_.erase(0, end + 1);
        return line;
      }
      if (is_at_end_ || buffer_.size() > kLineBytesMax) break;
      if (!fill()) return {.kind = LineKind::kEnd, .text = {}};
    }
    if (buffer_.empty()) return {.kind = LineKind::kEnd, .text = {}};
    return {.kind = LineKind::kLine, .text = std::exchange(buffer_, {})};
  }

  void remember(const std::string& /*text*/) override {}
  bool is_terminal() const override { return false; }

 private:
  // False when a signal came: a pipe has nobody to ask again.
  bool fill() {
    std::array<pollfd, 2> waiting = {
        pollfd{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
        pollfd{.fd = SignalScope::wake_fd(), .events = POLLIN, .revents = 0}};
    if (poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) is_at_end_ = true;
    if (SignalScope::should_stop()) return false;
    if (waiting[0].revents == 0) return true;
    std::array<char, 4096> chunk{};
    const ssize_t count = ::read(STDIN_FILENO, chunk.data(), chunk.size());
    if (count > 0) buffer_.append(chunk.data(), static_cast<size_t>(count));
    if (count == 0 || (count < 0 && errno != EINTR && errno != EAGAIN)) is_at_end_ = true;
    return true;
  }

  std::string buffer_;
  bool is_at_end_ = false;
};

}  // namespace

std::unique_ptr<LineSource> make_pipe_lines() { return std::make_unique<PipeLines>(); }

}  // namespace shoal::cli

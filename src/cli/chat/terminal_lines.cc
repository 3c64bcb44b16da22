#include <fcntl.h>
#include <histedit.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cwchar>

#include "base/unique_fd.h"
#include "cli/chat/line_source.h"
#include "cli/support/format.h"
#include "cli/support/signals.h"

namespace shoal::cli {
namespace {

constexpr int kHistoryEntriesMax = 1000;

// Creates every folder of the path that is missing, for the owner only.
bool make_folders(const std::string& path) {
  for (size_t slash = path.find('/', 1); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    if (mkdir(path.substr(0, slash).c_str(), 0700) != 0 && errno != EEXIST) return false;
  }
  return true;
}

// Empty where there is no place for it: a chat works without a history.
std::string history_path() {
  const char* state = std::getenv("XDG_STATE_HOME");
  const char* home = std::getenv("HOME");
  std::string path;
  if (state != nullptr && *state == '/') {
    path = std::string(state) + "/shoal/chat_history";
  } else if (home != nullptr && *home == '/') {
    path = std::string(home) + "/.local/state/shoal/chat_history";
  } else {
    return {};
  }
  if (!make_folders(path)) return {};
  // libedit creates a missing file with the usual rights; ours must be private from the start.
  const UniqueFd file(open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600));
  if (!file.is_valid() || fchmod(file.get(), 0600) != 0) return {};
  return path;
}

// One character from the terminal for libedit; -1 with errno EINTR when a signal came.
int read_character(EditLine* /*editor*/, wchar_t* character) {
  std::string bytes;
  for (;;) {
    std::array<pollfd, 2> waiting = {
        pollfd{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0},
        pollfd{.fd = SignalScope::wake_fd(), .events = POLLIN, .revents = 0}};
    if (poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) return -1;
    if (SignalScope::should_stop()) {
      errno = EINTR;
      return -1;
    }
    if (waiting[0].revents == 0) continue;
    char byte = 0;
    const ssize_t count = ::read(STDIN_FILENO, &byte, 1);
    if (count == 0) return 0;
    if (count < 0) {
      if (errno == EINTR || errno == EAGAIN) continue;
      return -1;
    }
    bytes.push_back(byte);
    std::mbstate_t conversion{};
    const size_t used = std::mbrtowc(character, bytes.data(), bytes.size(), &conversion);
    if (used == static_cast<size_t>(-2)) continue;  // more bytes of this character follow
    if (used != static_cast<size_t>(-1)) return 1;
    bytes.clear();  // no character of this locale: dropped
  }
}

class TerminalLines final : public LineSource {
 public:
  static Result<std::unique_ptr<LineSource>> create() {
    // The editor counts columns in characters; a locale without UTF-8 would break them apart.
    if (std::setlocale(LC_CTYPE, "") == nullptr || MB_CUR_MAX == 1) {
      std::setlocale(LC_CTYPE, "C.UTF-8");
    }
    std::unique_ptr<TerminalLines> lines(new TerminalLines);
    lines->editor_ = el_init("shoal", stdin, stdout, stderr);
    lines->history_ = history_init();
    if (lines->editor_ == nullptr || lines->history_ == nullptr) {
      return Status::node("cannot use the terminal for line editing; give a PROMPT instead");
    }
    lines->prepare();
    return std::unique_ptr<LineSource>(std::move(lines));
  }

  ~TerminalLines() override {
    if (editor_ != nullptr) el_end(editor_);
    if (history_ != nullptr) history_end(history_);
  }

  Line read(const std::string& prompt) override {
    prompt_ = prompt;
    el_resize(editor_);
    // Before the prompt is shown: a key pressed at once must not meet the terminal's line mode.
    el_set(editor_, EL_PREP_TERM, 1);
    int count = 0;
    errno = 0;
    const char* text = el_gets(editor_, &count);
    if (text != nullptr && count > 0) {
      std::string line(text, static_cast<size_t>(count));
      if (line.ends_with('\n')) line.pop_back();
      return {.kind = LineKind::kLine, .text = std::move(line)};
    }
    const bool is_interrupt =
        SignalScope::is_interrupted() && SignalScope::termination_signal() == 0;
    el_reset(editor_);
    return {.kind = is_interrupt ? LineKind::kInterrupted : LineKind::kEnd, .text = {}};
  }

  void remember(const std::string& text) override {
    HistEvent event;
    history(history_, &event, H_ENTER, text.c_str());
    if (!history_path_.empty()) history(history_, &event, H_SAVE, history_path_.c_str());
  }

  bool is_terminal() const override { return true; }

 private:
  TerminalLines() = default;

  static char* prompt_of(EditLine* editor) {
    void* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return static_cast<TerminalLines*>(self)->prompt_.data();
  }

  void prepare() {
    HistEvent event;
    history(history_, &event, H_SETSIZE, kHistoryEntriesMax);
    history(history_, &event, H_SETUNIQUE, 1);
    history_path_ = history_path();
    if (!history_path_.empty()) history(history_, &event, H_LOAD, history_path_.c_str());
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &prompt_of);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_HIST, ::history, history_);
    el_set(editor_, EL_GETCFN, &read_character);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_set(editor_, EL_BIND, "\\e[3~", "ed-delete-next-char", nullptr);
    el_set(editor_, EL_BIND, "\\e[1;5C", "em-next-word", nullptr);
    el_set(editor_, EL_BIND, "\\e[1;5D", "ed-prev-word", nullptr);
    el_source(editor_, nullptr);
  }

  EditLine* editor_ = nullptr;
  History* history_ = nullptr;
  std::string prompt_;
  std::string history_path_;
};

}  // namespace

Result<std::unique_ptr<LineSource>> make_terminal_lines() { return TerminalLines::create(); }

}  // namespace shoal::cli

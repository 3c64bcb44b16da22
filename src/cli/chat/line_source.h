// LineSource: where a chat's lines come from: an editor on a terminal, or a pipe.
//
// Thread rule: the main thread, inside a SignalScope.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"

namespace shoal::cli {

enum class LineKind {
  kLine,
  kInterrupted,  // Ctrl-C
  kEnd,          // Ctrl-D, end of the input, or a signal that ends the program
};

struct Line {
  LineKind kind = LineKind::kEnd;
  std::string text;  // without the line's end
};

class LineSource {
 public:
  virtual ~LineSource() = default;
  // The prompt is shown on terminals only.
  virtual Line read(const std::string& prompt) = 0;
  // Remembers what was asked, for the arrow keys. Nothing is kept for a pipe.
  virtual void remember(const std::string& text) = 0;
  virtual bool is_terminal() const = 0;
};

// Line editing by libedit, with the history in $XDG_STATE_HOME/shoal/chat_history (else
// ~/.local/state/...), readable by its owner only. kNode when the terminal cannot be used.
Result<std::unique_ptr<LineSource>> make_terminal_lines();

// Lines of standard input as they are.
std::unique_ptr<LineSource> make_pipe_lines();

}  // namespace shoal::cli

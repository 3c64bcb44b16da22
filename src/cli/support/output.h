// Output: one of the program's output streams, written at once and without surprises.
//
// A closed pipe (`shoal ... | head`) is no error: is_closed() turns true, and whoever writes on
// should end early. Any other failure to write is kept and returned by status().
// Thread rule: one thread at a time.
#pragma once

#include <string_view>

#include "base/status.h"

namespace shoal::cli {

class Output {
 public:
  // Borrows the descriptor. `what` names it in messages: "standard output".
  Output(int fd, std::string_view what);

  void write(std::string_view text);
  void write_line(std::string_view text);

  bool is_terminal() const { return is_terminal_; }
  // Nobody reads any more.
  bool is_closed() const { return is_closed_; }
  // Nothing more can be written, for whichever reason.
  bool is_done() const { return is_closed_ || !status_.is_ok(); }
  // Ok for a closed pipe.
  const Status& status() const { return status_; }

 private:
  int fd_;
  std::string_view what_;
  bool is_terminal_;
  bool is_closed_ = false;
  Status status_;
};

// Puts /dev/null, to read only, where standard input, output or error is closed: else the next file
// or socket would get the number, and what is printed would go there. Reading then gives the end,
// writing fails as on the closed descriptor (EBADF). To be called before anything is opened.
void hold_standard_descriptors();

// The two streams that every command writes to.
struct Console {
  Console();
  Output out;
  Output err;
};

}  // namespace shoal::cli

// ProgressBar: how far a long job is, on standard error.
//
// On a terminal one line is drawn anew, at most ten times a second; elsewhere there are plain
// lines, one at the start, one at the end, one now and then between; with `quiet` nothing at all.
// The destructor clears the line of an unfinished bar, so that an error message starts on a clean
// one. Thread rule: one thread at a time. Borrows the output.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "cli/support/output.h"

namespace shoal::cli {

struct ProgressBarOptions {
  std::string label;     // "loading model.gguf"
  uint64_t total = 0;    // 0: unknown
  bool is_bytes = true;  // amounts are bytes; else plain numbers
  bool is_quiet = false;
  Nanoseconds line_interval{std::chrono::seconds(5)};  // between plain lines, at least
};

class ProgressBar {
 public:
  ProgressBar(Output& output, ProgressBarOptions options);
  ~ProgressBar();
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void update(uint64_t done);
  // A new label or total for what is left to do.
  void set_label(std::string label) { options_.label = std::move(label); }
  void set_total(uint64_t total) { options_.total = total; }
  // The job is done: clears the bar (on a terminal) or says so in a line.
  void finish();

 private:
  std::string amount(uint64_t n) const;
  std::string bar_line(uint64_t done) const;
  std::string plain_line(uint64_t done) const;
  void clear();

  Output& output_;
  ProgressBarOptions options_;
  Nanoseconds started_;
  Nanoseconds drawn_at_{0};
  bool is_drawn_ = false;
  bool is_finished_ = false;
};

}  // namespace shoal::cli

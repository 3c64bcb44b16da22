#include "cli/support/progress_bar.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/elapsed.h"
#include "cli/support/format.h"

namespace shoal::cli {
namespace {

constexpr int kBarColumns = 24;
constexpr Nanoseconds kRedrawInterval = std::chrono::milliseconds(100);
constexpr std::string_view kClearLine = "\r\x1b[K";

}  // namespace

ProgressBar::ProgressBar(Output& output, ProgressBarOptions options)
    : output_(output), options_(std::move(options)), started_(SteadyClock::instance().now()) {
  if (options_.is_quiet) return;
  if (output_.is_terminal()) {
    update(0);
  } else {
    drawn_at_ = started_;
    output_.write_line(options_.label);
  }
}

ProgressBar::~ProgressBar() { clear(); }

std::string ProgressBar::amount(uint64_t n) const {
  return options_.is_bytes ? format_bytes(n) : fmt::format("{}", n);
}

std::string ProgressBar::bar_line(uint64_t done) const {
  if (options_.total == 0) {
    return done == 0 ? options_.label : fmt::format("{}  {}", options_.label, amount(done));
  }
  const double share =
      std::min(1.0, static_cast<double>(done) / static_cast<double>(options_.total));
  const int filled = static_cast<int>(share * kBarColumns);
  std::string bar;
  for (int i = 0; i < kBarColumns; ++i) bar += i < filled ? "█" : "░";
  std::string text = fmt::format("{}  {} {:3.0f}%  {} of {}", options_.label, bar, share * 100,
                                 amount(done), amount(options_.total));
  const double elapsed = seconds_between(started_, SteadyClock::instance().now());
  if (share > 0.01 && share < 1 && elapsed > 1) {
    text += fmt::format("  {} left", format_seconds(elapsed * (1 - share) / share));
  }
  return text;
}

std::string ProgressBar::plain_line(uint64_t done) const {
  if (options_.total == 0) return fmt::format("{}: {}", options_.label, amount(done));
  const double share = static_cast<double>(done) / static_cast<double>(options_.total);
  return fmt::format("{}: {:.0f} %, {} of {}", options_.label, std::min(1.0, share) * 100,
                     amount(done), amount(options_.total));
}

void ProgressBar::update(uint64_t done) {
  if (options_.is_quiet || is_finished_) return;
  const Nanoseconds now = SteadyClock::instance().now();
  if (!output_.is_terminal()) {
    if (now - drawn_at_ < options_.line_interval) return;
    drawn_at_ = now;
    output_.write_line(plain_line(done));
    return;
  }
  if (is_drawn_ && now - drawn_at_ < kRedrawInterval) return;
  drawn_at_ = now;
  is_drawn_ = true;
  output_.write(std::string(kClearLine) + bar_line(done));
}

void ProgressBar::finish() {
  if (is_finished_) return;
  if (!options_.is_quiet && !output_.is_terminal()) {
    const double elapsed = seconds_between(started_, SteadyClock::instance().now());
    output_.write_line(fmt::format("{}: done in {}", options_.label, format_seconds(elapsed)));
  }
  clear();
  is_finished_ = true;
}

void ProgressBar::clear() {
  if (is_drawn_) output_.write(kClearLine);
  is_drawn_ = false;
}

}  // namespace shoal::cli

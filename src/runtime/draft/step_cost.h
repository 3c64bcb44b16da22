// StepCost: what a step of answers costs, by its rows (tokens that are computed).
//
// A line through what the latest steps took, older ones counting ever less, so that it follows a
// growing context. While all steps have had the same rows, what a further row adds is a guess.
// Thread rule: values.
#pragma once

#include <algorithm>
#include <cstddef>

namespace shoal::runtime {

class StepCost {
 public:
  // The guess: what a row adds, in steps of one row.
  static constexpr double kRowShare = 0.25;

  void note(size_t rows, double took) {
    const auto count = static_cast<double>(rows);
    if (!is_known()) {
      mean_rows_ = count;
      mean_seconds_ = took;
      return;
    }
    // One step that something else held up says little.
    const double more_seconds = std::min(took, 2 * seconds(count)) - mean_seconds_;
    const double more_rows = count - mean_rows_;
    mean_rows_ += kNew * more_rows;
    mean_seconds_ += kNew * more_seconds;
    spread_ = (1 - kNew) * (spread_ + kNew * more_rows * more_rows);
    joint_ = (1 - kNew) * (joint_ + kNew * more_rows * more_seconds);
  }

  bool is_known() const { return mean_seconds_ > 0; }
  double seconds(double rows) const { return mean_seconds_ + row_seconds() * (rows - mean_rows_); }
  // What one more row adds: at least nothing, at most as much as the rows cost on average.
  double row_seconds() const {
    const double guess = mean_seconds_ / (1 / kRowShare + mean_rows_ - 1);
    const double slope = (joint_ + kGuessWeight * guess) / (spread_ + kGuessWeight);
    return std::clamp(slope, 0.0, mean_seconds_ / mean_rows_);
  }

 private:
  static constexpr double kNew = 1.0 / 32;
  // In squared rows, as spread_.
  static constexpr double kGuessWeight = 0.02;

  double mean_rows_ = 1;
  double mean_seconds_ = 0;
  double spread_ = 0;  // mean of squared differences from mean_rows_
  double joint_ = 0;   // mean of products of both differences
};

}  // namespace shoal::runtime

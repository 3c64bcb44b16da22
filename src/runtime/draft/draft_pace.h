// DraftPace: how many drafted tokens are worth their rows in a step.
//
// As many as give the most tokens a second, by what rows have cost lately and by how often drafts
// like these were right. A machine that reads its weights for one row as fast as for eight drafts
// boldly; one whose rows cost much, or a step of many answers, takes only what is nearly certain.
// Thread rule: values.
#pragma once

#include <cstddef>

#include "runtime/draft/ngram_drafter.h"
#include "runtime/draft/step_cost.h"

namespace shoal::runtime {

class DraftPace {
 public:
  // What a row must bring, in times of what it costs.
  static constexpr double kCaution = 1.1;

  // What a step of answers took.
  void note(size_t rows, double seconds) { cost_.note(rows, seconds); }

  // A step has a row for each of so many answers, then what choose() adds to it.
  void begin_step(size_t answers) {
    rows_ = static_cast<double>(answers);
    tokens_ = rows_;
  }
  // How many tokens of the draft the step should take, at most `most`.
  size_t choose(const NgramDrafter& drafter, size_t most) {
    if (!cost_.is_known()) return 0;
    const double base = cost_.seconds(rows_);
    const double row = cost_.row_seconds() * kCaution;
    double best_speed = tokens_ / base;
    double best_gain = 0;
    size_t best = 0;
    double likelihood = 1;
    double gain = 0;
    for (size_t i = 0; i < most; ++i) {
      likelihood *= drafter.likelihood(i);
      gain += likelihood;
      const double speed = (tokens_ + gain) / (base + row * static_cast<double>(i + 1));
      if (speed <= best_speed) continue;
      best_speed = speed;
      best_gain = gain;
      best = i + 1;
    }
    rows_ += static_cast<double>(best);
    tokens_ += best_gain;
    return best;
  }

 private:
  StepCost cost_;
  double rows_ = 0;    // of the step being planned
  double tokens_ = 0;  // that it should give
};

}  // namespace shoal::runtime

// PrefillPace: how many tokens of prompts fit into a step of a given length.
//
// From what past steps took: a step of answers only, and what each token of a prompt adds to it.
// Thread rule: values.
#pragma once

#include <algorithm>
#include <cstddef>

namespace shoal::runtime {

class PrefillPace {
 public:
  static constexpr size_t kFirst = 32;      // before anything was measured
  static constexpr size_t kTokensMin = 16;  // below this prompts would hardly get on
  static constexpr size_t kGrain = 16;      // rows that kernels like to take together

  struct Step {
    size_t answers = 0;         // tokens of answers
    size_t prefill_tokens = 0;  // of prompts
    double seconds = 0;
  };

  void note(const Step& step) {
    if (step.prefill_tokens == 0) {
      mix(&answers_seconds_, step.seconds);
      return;
    }
    const double answers = step.answers > 0 ? answers_seconds_ : 0;
    mix(&token_seconds_,
        std::max(step.seconds - answers, 0.0) / static_cast<double>(step.prefill_tokens));
  }

  // For a step that should take `seconds` at most, without answers and with.
  size_t tokens_alone(double seconds) const { return tokens_in(seconds); }
  size_t tokens_beside_answers(double seconds) const {
    return tokens_in(seconds - answers_seconds_);
  }

 private:
  size_t tokens_in(double seconds) const {
    if (token_seconds_ <= 0) return kFirst;
    const double fit = std::max(0.0, seconds) / token_seconds_;
    const auto whole = static_cast<size_t>(std::min(fit, 1e9)) / kGrain * kGrain;
    return std::max(whole, kTokensMin);
  }

  static void mix(double* mean, double value) {
    constexpr double kNew = 0.25;
    *mean = *mean == 0 ? value : *mean + kNew * (value - *mean);
  }

  double answers_seconds_ = 0;
  double token_seconds_ = 0;
};

}  // namespace shoal::runtime

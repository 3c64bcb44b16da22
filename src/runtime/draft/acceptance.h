// AcceptanceRates: how often drafted tokens were what the model then chose.
//
// Kept apart by the length of the match that they came from: what follows two tokens seen before is
// a guess, what follows twenty is most often a copy under way.
// Thread rule: values.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

namespace shoal::runtime {

class AcceptanceRates {
 public:
  void note(size_t match_length, bool was_right) {
    double& rate = rates_[class_of(match_length)];
    rate += kNew * ((was_right ? 1.0 : 0.0) - rate);
  }
  // Of the token after a match of that length, from 0 to 1.
  double rate(size_t match_length) const { return rates_[class_of(match_length)]; }

 private:
  static constexpr double kNew = 0.125;
  static constexpr size_t kClasses = 5;

  // Matches of 2 tokens, of 3, of 4 to 7, of 8 to 15, longer ones.
  static size_t class_of(size_t match_length) {
    return std::clamp<size_t>(match_length < 3 ? 1 : std::bit_width(match_length), 1, kClasses) - 1;
  }

  // Low at first: until an answer has shown that it repeats, drafts cost more than they give.
  std::array<double, kClasses> rates_ = {0.2, 0.3, 0.5, 0.75, 0.9};
};

}  // namespace shoal::runtime

// StopMatcher: ends an answer at the first stop string, in text that arrives in pieces.
//
// Text is passed on at once, except a suffix that is the beginning of a stop string; that is held
// back until it is known. The result does not depend on how the text was cut into pieces: of all
// stops the one that ends first counts, and of those that end together the longest. Pieces that are
// whole UTF-8 characters come out as whole characters.
// One matcher serves one answer. Thread rule: one thread at a time. Cost: O(stops) per byte.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace shoal::runtime {

class StopMatcher {
 public:
  static constexpr size_t kStopsMax = 64;
  static constexpr size_t kStopBytesMax = 4096;

  // kRequest for an empty stop string, a too long one, or too many.
  static Result<StopMatcher> create(std::vector<std::string> stops);

  // The part of all text so far that is now known to be before any stop. Empty once stopped.
  std::string push(std::string_view text);
  // The end of the answer: what was held back.
  std::string finish();

  // The stop string that was met.
  std::optional<std::string_view> matched() const;

 private:
  // A Knuth-Morris-Pratt automaton; `state` bytes of `text` are the suffix of what was read.
  struct Stop {
    std::string text;
    std::vector<uint32_t> fallback;  // [text.size()] longest proper border of text[0..i]
    size_t state = 0;
  };
  static bool step(Stop* stop, char byte);

  std::vector<Stop> stops_;
  std::string held_;
  std::optional<size_t> matched_;
};

}  // namespace shoal::runtime

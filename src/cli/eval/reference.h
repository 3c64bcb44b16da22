// Reference: what an exact reader of a model computes for a text, in short: the 64 best tokens of
// every scored position.
//
// The file (".top64", specified in docs/eval.md): for n positions, n x 64 token ids as uint16, best
// first, then n x 64 natural-log probabilities as float32, both little-endian.
// Thread rule: immutable after reading.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"

namespace shoal::cli {

class Reference {
 public:
  static constexpr size_t kTop = 64;

  struct Position {
    std::span<const uint16_t> ids;             // [kTop], best first
    std::span<const float> log_probabilities;  // [kTop]
  };

  // kRequest where the file is not of this form.
  static Result<Reference> read(const std::string& path);

  size_t size() const { return ids_.size() / kTop; }
  Position position(size_t i) const;

 private:
  std::vector<uint16_t> ids_;
  std::vector<float> log_probabilities_;
};

}  // namespace shoal::cli

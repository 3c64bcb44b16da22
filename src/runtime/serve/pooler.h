// Pooler: from the hidden states of a text's tokens, as steps compute them, to one vector.
//
// The sum goes from the first token to the last in float64, so its bits do not depend on how a
// prompt was cut into steps.
// Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/model_config.h"

namespace shoal::runtime {

class Pooler {
 public:
  Pooler(model::Pooling pooling, size_t hidden_size)
      : pooling_(pooling), hidden_size_(hidden_size), sum_(hidden_size) {}

  // states: [tokens, hidden_size] of the tokens from position `first` on, which is at most where
  // the earlier ones ended. What was seen before is passed over: a request that stepped back
  // computes it once more.
  void add(size_t first, std::span<const float> states);

  // [hidden_size]. kRequest: a state was not finite. After at least one token.
  Result<std::vector<float>> finish() const;

 private:
  model::Pooling pooling_;
  size_t hidden_size_;
  size_t tokens_ = 0;        // seen
  std::vector<double> sum_;  // kLast: the last state alone
};

}  // namespace shoal::runtime

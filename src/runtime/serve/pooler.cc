#include "runtime/serve/pooler.h"

#include <cmath>

#include "base/check.h"

namespace shoal::runtime {

void Pooler::add(size_t first, std::span<const float> states) {
  CHECK(first <= tokens_ && states.size() % hidden_size_ == 0);
  const size_t end = first + states.size() / hidden_size_;
  for (; tokens_ < end; ++tokens_) {
    const auto state = states.subspan((tokens_ - first) * hidden_size_, hidden_size_);
    const bool is_alone = pooling_ == model::Pooling::kLast;
    for (size_t i = 0; i < hidden_size_; ++i) sum_[i] = (is_alone ? 0 : sum_[i]) + state[i];
  }
}

Result<std::vector<float>> Pooler::finish() const {
  CHECK(tokens_ > 0);
  const double count = pooling_ == model::Pooling::kLast ? 1 : static_cast<double>(tokens_);
  std::vector<float> values(hidden_size_);
  for (size_t i = 0; i < hidden_size_; ++i) {
    values[i] = static_cast<float>(sum_[i] / count);
    if (!std::isfinite(values[i])) return Status::request("non-finite hidden states");
  }
  return values;
}

}  // namespace shoal::runtime

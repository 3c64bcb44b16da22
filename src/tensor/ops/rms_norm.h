// RmsNorm: x / sqrt(mean(x^2) + epsilon) * weight (Zhang and Sennrich 2019).
//
// Thread rule: pure functions.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "tensor/cpu/kernels.h"

namespace shoal::tensor {

struct RmsNorm {
  std::span<const float> weight;  // [cols]
  float epsilon = 0;

  int64_t cols() const { return static_cast<int64_t>(weight.size()); }
  // What x [cols] is multiplied with, beside the weight. NaN and infinity propagate.
  float factor(const Kernels& kernels, const float* x) const {
    const float mean = kernels.dot(x, x, cols()) / static_cast<float>(cols());
    return 1.0F / std::sqrt(mean + epsilon);
  }
  // y may be x.
  void apply(const Kernels& kernels, const float* x, float* y) const {
    kernels.scale_by_weight(x, weight.data(), factor(kernels, x), y, cols());
  }
};

}  // namespace shoal::tensor

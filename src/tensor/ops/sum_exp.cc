#include "tensor/ops/sum_exp.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "tensor/cpu/kernels.h"

namespace shoal::tensor {

double sum_exp(std::span<const float> x, const SumExp& how) {
  const Kernels& kernels = kernels_for(how.path);
  std::array<float, 1024> run;
  double sum = 0;
  while (!x.empty()) {
    const std::span<const float> part = x.first(std::min(x.size(), run.size()));
    for (size_t i = 0; i < part.size(); ++i) run[i] = (part[i] - how.shift) * how.scale;
    sum += kernels.sum_exp(run.data(), 0, static_cast<int64_t>(part.size()));
    x = x.subspan(part.size());
  }
  return sum;
}

}  // namespace shoal::tensor

#include "tensor/ops/sum_exp.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace shoal::tensor {
namespace {

std::vector<float> random_logits(size_t count) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0.0F, 5.0F);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

TEST(SumExp, AgreesWithFloat64OnEveryPath) {
  for (const KernelPath path : runnable_kernel_paths()) {
    for (const size_t count : {1U, 15U, 16U, 17U, 1023U, 1025U, 49152U}) {
      std::vector<float> logits = random_logits(count);
      logits.push_back(-std::numeric_limits<float>::infinity());  // a masked token adds nothing
      for (const float scale : {1.0F, 0.7F, 3.0F}) {
        double expected = 0;
        for (const float logit : logits) {
          expected += std::exp((static_cast<double>(logit) - 20.0) * static_cast<double>(scale));
        }
        // An argument of up to 135 is rounded twice to 24 bits: 135 * 2^-23 = 2e-5 of the small
        // terms; each exponential is good to 2^-22.
        EXPECT_NEAR(sum_exp(logits, {.shift = 20, .scale = scale, .path = path}), expected,
                    expected * 2e-5)
            << kernel_path_name(path) << ' ' << count << ' ' << scale;
      }
    }
    EXPECT_EQ(sum_exp({}, {.path = path}), 0);
  }
}

TEST(SumExp, LargeLogitsDoNotOverflow) {
  const std::vector<float> logits{3e38F, 3e38F, -3e38F};
  EXPECT_EQ(sum_exp(logits, {.shift = 3e38F, .path = KernelPath::kExact}), 2);
  EXPECT_EQ(sum_exp(logits, {.shift = 3e38F}), 2);
}

}  // namespace
}  // namespace shoal::tensor

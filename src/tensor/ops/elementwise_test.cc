#include "tensor/ops/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tensor/quant/quantize.h"

namespace shoal::tensor {
namespace {

constexpr int64_t kOddSizes[] = {1, 15, 16, 17, 64, 576, 1000};

std::vector<float> random_floats(size_t count, uint32_t seed, float size = 1.0F) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0F, size);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

class Elementwise : public testing::TestWithParam<KernelPath> {
 protected:
  void run(int workers, const std::function<void(Worker&)>& fn) const {
    auto pool = std::move(WorkerPool::create({.workers = workers, .path = GetParam()})).value();
    pool->run(fn);
  }
};

INSTANTIATE_TEST_SUITE_P(EveryPath, Elementwise, testing::ValuesIn(runnable_kernel_paths()),
                         [](const testing::TestParamInfo<KernelPath>& info) {
                           return std::string(kernel_path_name(info.param));
                         });

// Case C100, values computed from the formula.
TEST_P(Elementwise, RmsNormUsesItsEpsilon) {
  const std::vector<float> x = {0.001F, -0.002F, 0.001F, 0.0F};
  const std::vector<float> weight(4, 1.0F);
  std::vector<float> y(4);
  run(1,
      [&](Worker& me) { rms_norm(me, {x.data(), 1, 4, 4}, {weight, 1e-5F}, {y.data(), 1, 4, 4}); });
  EXPECT_NEAR(y[0], 0.2949F, 1e-4);
  EXPECT_NEAR(y[1], -0.5898F, 1e-4);
  EXPECT_EQ(y[3], 0.0F);
  run(1,
      [&](Worker& me) { rms_norm(me, {x.data(), 1, 4, 4}, {weight, 1e-6F}, {y.data(), 1, 4, 4}); });
  EXPECT_NEAR(y[0], 0.6325F, 1e-4);
  EXPECT_NEAR(y[1], -1.2649F, 1e-4);
}

TEST_P(Elementwise, RmsNormAgreesWithFloat64ForEverySize) {
  for (const int64_t cols : kOddSizes) {
    const auto count = static_cast<size_t>(cols);
    const std::vector<float> x = random_floats(count * 3, 1);
    const std::vector<float> weight = random_floats(count, 2);
    std::vector<float> y(count * 3);
    run(2, [&](Worker& me) {
      rms_norm(me, {x.data(), 3, cols, cols}, {weight, 1e-5F}, {y.data(), 3, cols, cols});
    });
    for (size_t row = 0; row < 3; ++row) {
      double squares = 0;
      for (size_t i = 0; i < count; ++i) squares += std::pow(x[row * count + i], 2.0);
      const double factor = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
      for (size_t i = 0; i < count; ++i) {
        const double want = x[row * count + i] * factor * weight[i];
        // The sum of squares passes under cols / 16 + 8 roundings, the rest four more.
        const double roundings = static_cast<double>(cols) / 16 + 12;
        ASSERT_NEAR(y[row * count + i], want, std::fabs(want) * roundings * 0x1p-24);
      }
    }
  }
}

TEST_P(Elementwise, RmsNormOfHeadsTreatsEachHeadOnItsOwn) {
  const std::vector<float> x = random_floats(2 * 3 * 24, 3);
  const std::vector<float> weight = random_floats(24, 4);
  std::vector<float> heads = x;
  std::vector<float> rows = x;
  run(3, [&](Worker& me) {
    rms_norm_heads(me, {heads.data(), 2, 72, 72}, {weight, 1e-6F});
    rms_norm(me, {x.data(), 6, 24, 24}, {weight, 1e-6F}, {rows.data(), 6, 24, 24});
  });
  EXPECT_EQ(heads, rows);
}

TEST_P(Elementwise, SwigluAgreesWithFloat64AlsoAtTheExtremes) {
  for (const int64_t cols : kOddSizes) {
    const auto count = static_cast<size_t>(cols);
    std::vector<float> gate = random_floats(count * 2, 5, 20.0F);
    gate[0] = -1000.0F;
    gate[count - 1] = 1000.0F;
    const std::vector<float> up = random_floats(count * 2, 6);
    std::vector<float> out(count * 2);
    run(2, [&](Worker& me) {
      swiglu(me, {gate.data(), 2, cols, cols}, {up.data(), 2, cols, cols},
             {out.data(), 2, cols, cols});
    });
    for (size_t i = 0; i < out.size(); ++i) {
      const double g = gate[i];
      const double want = g / (1 + std::exp(-g)) * up[i];
      // exp is good to 2^-22; below -87 it may be 0 or infinity, and the product then is 0.
      ASSERT_NEAR(out[i], want, std::fabs(want) * 0x1p-21 + 1e-35) << gate[i];
    }
  }
}

TEST_P(Elementwise, AddAndBiasAddEverywhereOnce) {
  for (const int workers : {1, 4}) {
    const std::vector<float> x = random_floats(3 * 37, 7);
    const std::vector<float> bias = random_floats(37, 8);
    std::vector<float> y = random_floats(3 * 37, 9);
    const std::vector<float> before = y;
    run(workers, [&](Worker& me) {
      add(me, {y.data(), 3, 37, 37}, {x.data(), 3, 37, 37});
      me.barrier();
      add_bias(me, {y.data(), 3, 37, 37}, bias);
    });
    for (size_t i = 0; i < y.size(); ++i) {
      ASSERT_EQ(y[i], before[i] + x[i] + bias[i % 37]);
    }
  }
}

TEST_P(Elementwise, EmbeddingGivesTheRowsOfItsTokens) {
  const std::vector<float> values = random_floats(10 * 64, 10);
  for (const DType type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    const std::vector<std::byte> bytes = quantize_matrix(type, values, 64);
    const std::vector<int32_t> tokens = {9, 0, 3, 3, 5};
    std::vector<float> out(5 * 64);
    run(2,
        [&](Worker& me) { embedding(me, {type, 10, 64, bytes}, tokens, {out.data(), 5, 64, 64}); });
    for (size_t i = 0; i < out.size(); ++i) {
      const auto row = static_cast<size_t>(tokens[i / 64]);
      ASSERT_NEAR(out[i], values[row * 64 + i % 64], type == DType::kF32 ? 0 : 0.02);
    }
  }
}

TEST_P(Elementwise, NanAndInfinityPassThrough) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> x = random_floats(64, 11);
    x[20] = bad;
    const std::vector<float> weight(64, 1.0F);
    std::vector<float> norm(64);
    std::vector<float> product(64);
    run(1, [&](Worker& me) {
      rms_norm(me, {x.data(), 1, 64, 64}, {weight, 1e-5F}, {norm.data(), 1, 64, 64});
      swiglu(me, {x.data(), 1, 64, 64}, {x.data(), 1, 64, 64}, {product.data(), 1, 64, 64});
    });
    EXPECT_FALSE(std::isfinite(norm[20]));
    EXPECT_FALSE(std::isfinite(product[20]));
    EXPECT_TRUE(std::isfinite(product[21]));
  }
}

}  // namespace
}  // namespace shoal::tensor

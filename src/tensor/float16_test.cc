#include "tensor/float16.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tensor/cpu/kernels.h"

namespace shoal::tensor {
namespace {

// The compiler's own half type is the reference.
float half_to_float(uint16_t bits) { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
uint16_t float_to_half(float value) {
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

TEST(Float16, EveryHalfConvertsToItsValueAndBack) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = f16_to_float(half);
    if (std::isnan(half_to_float(half))) {
      EXPECT_TRUE(std::isnan(value));
      EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16(value))));
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(value), std::bit_cast<uint32_t>(half_to_float(half))) << bits;
    ASSERT_EQ(float_to_f16(value), half);
  }
}

TEST(Float16, FloatsRoundToTheNearestHalfTiesToEven) {
  std::mt19937 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    // Exponents around the range of half, low bits often all zero or a tie.
    const auto draw = static_cast<uint32_t>(random());
    uint32_t bits = (draw & 0x807fffffU) | ((90U + draw % 60U) << 23);
    if (i % 3 == 0) bits = (bits & 0xffffe000U) | 0x1000U;
    const float value = std::bit_cast<float>(bits);
    ASSERT_EQ(float_to_f16(value), float_to_half(value)) << value;
  }
  EXPECT_EQ(float_to_f16(65519.9F), 0x7bff);
  EXPECT_EQ(float_to_f16(65520.0F), 0x7c00);
  EXPECT_EQ(float_to_f16(-std::numeric_limits<float>::infinity()), 0xfc00);
}

TEST(Float16, SaturatingKeepsFiniteValuesFinite) {
  EXPECT_EQ(float_to_f16_saturated(1e5F), 0x7bff);
  EXPECT_EQ(float_to_f16_saturated(-1e30F), 0xfbff);
  EXPECT_EQ(float_to_f16_saturated(1.5F), float_to_f16(1.5F));
  EXPECT_EQ(float_to_f16_saturated(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_TRUE(std::isnan(f16_to_float(float_to_f16_saturated(std::nanf("")))));
}

TEST(Float16, Bfloat16RoundsToTheNearestTiesToEven) {
  EXPECT_EQ(float_to_bf16(1.0F), 0x3f80);
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808000U)), 0x3f80);  // tie, even below
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f818000U)), 0x3f82);  // tie, even above
  EXPECT_EQ(float_to_bf16(std::bit_cast<float>(0x3f808001U)), 0x3f81);
  EXPECT_EQ(bf16_to_float(0xc040), -3.0F);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::nanf("")))));
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::bit_cast<float>(0x7f800001U)))));
}

TEST(Float16, EveryKernelPathStoresTheSameHalves) {
  std::mt19937 random(5);
  std::vector<float> values;
  for (const float special : {0.0F, -0.0F, 1.0F, 65504.0F, -65504.0F, 65519.0F, 65520.0F, 1e6F,
                              -3e38F, std::numeric_limits<float>::infinity(),
                              -std::numeric_limits<float>::infinity(), 6e-8F, 2.9e-8F, -1e-5F}) {
    values.push_back(special);
  }
  values.push_back(std::bit_cast<float>(0x7fc12345U));
  values.push_back(std::bit_cast<float>(0xff812345U));
  while (values.size() < 1000) {
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(random())));
  }
  for (const KernelPath path : runnable_kernel_paths()) {
    // Counts that are no multiple of a vector leave what follows them alone.
    for (const size_t count : {size_t{1}, size_t{15}, size_t{16}, size_t{24}, values.size()}) {
      std::vector<uint16_t> halves(count + 1, 0xabcd);
      kernels_for(path).store_halves(values.data(), static_cast<int64_t>(count),
                                     reinterpret_cast<std::byte*>(halves.data()));
      for (size_t i = 0; i < count; ++i) {
        ASSERT_EQ(halves[i], float_to_f16_saturated(values[i]))
            << kernel_path_name(path) << " " << values[i];
      }
      EXPECT_EQ(halves[count], 0xabcd);
    }
  }
}

}  // namespace
}  // namespace shoal::tensor

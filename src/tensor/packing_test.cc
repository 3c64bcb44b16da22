// The contract of pack_activations' sources, on every kernel path: what norms, sums and SwiGLU give
// is read back in a float format, and packing for a matrix gives the bits of packing plain rows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "tensor/activations.h"
#include "tensor/matmul_testing.h"

namespace shoal::tensor {
namespace {

using Kind = InputFormat::Kind;

constexpr int64_t kOddSizes[] = {1, 15, 16, 17, 64, 576, 1000};

// float32 values [rows, cols] of their own.
struct Table {
  int64_t rows;
  int64_t cols;
  std::vector<float> values;

  Table(int64_t row_count, int64_t col_count, uint32_t seed)
      : rows(row_count),
        cols(col_count),
        values(random_floats(static_cast<size_t>(rows * cols), seed)) {}
  FloatRows view() { return {values.data(), rows, cols, cols}; }
  float& at(int64_t row, int64_t col) { return values[static_cast<size_t>(row * cols + col)]; }
};

class Packing : public testing::TestWithParam<KernelPath> {
 protected:
  // The bytes that the source becomes in the format.
  std::vector<std::byte> pack(const InputSource& source, const InputFormat& format,
                              int workers = 2) const {
    auto pool = make_pool(GetParam(), workers);
    EXPECT_TRUE(pool->reserve_scratch(packing_scratch_bytes(format.cols)).is_ok());
    Activations out = Activations::allocate({source.x.rows, format.cols}).value();
    std::memset(out.data(), 0, out.bytes());
    pool->run([&](Worker& me) { pack_activations(me, source, format, out); });
    return {out.data(), out.data() + out.bytes()};
  }

  // The source's values [rows, cols].
  std::vector<float> values(const InputSource& source, int workers = 2) const {
    const std::vector<std::byte> bytes = pack(source, {Kind::kFloat, source.x.cols, 0}, workers);
    std::vector<float> floats(static_cast<size_t>(source.x.rows * source.x.cols));
    std::memcpy(floats.data(), bytes.data(), floats.size() * sizeof(float));
    return floats;
  }
};

INSTANTIATE_TEST_SUITE_P(EveryPath, Packing, testing::ValuesIn(runnable_kernel_paths()),
                         [](const testing::TestParamInfo<KernelPath>& info) {
                           return std::string(kernel_path_name(info.param));
                         });

// Case C100, values computed from the formula.
TEST_P(Packing, NormUsesItsEpsilon) {
  const std::vector<float> x = {0.001F, -0.002F, 0.001F, 0.0F};
  const std::vector<float> weight(4, 1.0F);
  std::vector<float> y = values(InputSource::normed({x.data(), 1, 4, 4}, {weight, 1e-5F}));
  EXPECT_NEAR(y[0], 0.2949F, 1e-4);
  EXPECT_NEAR(y[1], -0.5898F, 1e-4);
  EXPECT_EQ(y[3], 0.0F);
  y = values(InputSource::normed({x.data(), 1, 4, 4}, {weight, 1e-6F}));
  EXPECT_NEAR(y[0], 0.6325F, 1e-4);
  EXPECT_NEAR(y[1], -1.2649F, 1e-4);
}

TEST_P(Packing, NormAgreesWithFloat64ForEverySize) {
  for (const int64_t cols : kOddSizes) {
    Table x(3, cols, 1);
    const std::vector<float> weight = random_floats(static_cast<size_t>(cols), 2);
    const std::vector<float> y = values(InputSource::normed(x.view(), {weight, 1e-5F}));
    for (int64_t row = 0; row < 3; ++row) {
      double squares = 0;
      for (int64_t i = 0; i < cols; ++i) squares += std::pow(x.at(row, i), 2.0);
      const double factor = 1 / std::sqrt(squares / static_cast<double>(cols) + 1e-5);
      for (int64_t i = 0; i < cols; ++i) {
        const double want = x.at(row, i) * factor * weight[static_cast<size_t>(i)];
        // The sum of squares passes under cols / 16 + 8 roundings, the rest four more.
        const double roundings = static_cast<double>(cols) / 16 + 12;
        ASSERT_NEAR(y[static_cast<size_t>(row * cols + i)], want,
                    std::fabs(want) * roundings * 0x1p-24);
      }
    }
  }
}

TEST_P(Packing, NormOfASumWritesTheSumOnce) {
  for (const int workers : {1, 2, 5}) {
    Table x(3, 1000, 3);
    Table addend(3, 1000, 4);
    Table sum(3, 1000, 5);
    Table want(3, 1000, 6);
    for (size_t i = 0; i < want.values.size(); ++i) {
      want.values[i] = x.values[i] + addend.values[i];
    }
    const std::vector<float> weight = random_floats(1000, 7);
    const RmsNorm norm{weight, 1e-5F};
    const InputSource source = InputSource::normed_sum({x.view(), addend.view(), sum.view()}, norm);
    const std::vector<float> packed = values(source, workers);
    EXPECT_EQ(sum.values, want.values);
    EXPECT_EQ(packed, values(InputSource::normed(want.view(), norm)));
    // Packed again, the sum is not added a second time.
    EXPECT_EQ(values(source.again(), workers), packed);
    EXPECT_EQ(sum.values, want.values);
  }
}

TEST_P(Packing, SwigluAgreesWithFloat64AlsoAtTheExtremes) {
  for (const int64_t cols : kOddSizes) {
    Table gate(2, cols, 8);
    Table up(2, cols, 9);
    for (float& value : gate.values) value *= 20;
    gate.at(0, 0) = -1000.0F;
    gate.at(0, cols - 1) = 1000.0F;
    const std::vector<float> out = values(InputSource::swiglu(gate.view(), up.view()));
    for (size_t i = 0; i < out.size(); ++i) {
      const double g = gate.values[i];
      const double want = g / (1 + std::exp(-g)) * up.values[i];
      // exp is good to 2^-22; below -87 it may be 0 or infinity, and the product then is 0.
      ASSERT_NEAR(out[i], want, std::fabs(want) * 0x1p-21 + 1e-35) << g;
    }
  }
}

TEST_P(Packing, ComputedSourcesPackLikeTheirRowsInEveryFormatAndForAnyWorkers) {
  constexpr int64_t kRows = 11;
  constexpr int64_t kCols = 300;
  Table x(kRows, kCols, 10);
  Table other(kRows, kCols, 11);
  Table sum(kRows, kCols, 12);
  const std::vector<float> weight = random_floats(kCols, 13);
  const InputSource sources[] = {
      InputSource::normed(x.view(), {weight, 1e-5F}),
      InputSource::normed_sum({x.view(), other.view(), sum.view()}, {weight, 1e-5F}),
      InputSource::swiglu(x.view(), other.view())};
  std::vector<InputFormat> formats = {{Kind::kFloat, kCols, 0}};
  if (GetParam() != KernelPath::kExact) {
    formats.push_back({Kind::kFloatTiles, kCols, 0});
    formats.push_back({Kind::kByteBlocks, kCols, 0});
    formats.push_back({Kind::kByteBlocks, kCols, 19});
  }
  for (const InputSource& source : sources) {
    const std::vector<float> plain = values(source, 1);
    const ConstFloatRows rows{plain.data(), kRows, kCols, kCols};
    for (const InputFormat& format : formats) {
      const std::vector<std::byte> want = pack(InputSource::rows(rows), format, 1);
      for (const int workers : {1, 2, 3, 40}) {
        EXPECT_EQ(pack(source, format, workers), want) << format.lead << " by " << workers;
      }
    }
  }
}

// Blocks of ordinary values have bytes alone; where one value dominates, the rest is kept in finer
// steps; the sums are of what was kept.
TEST_P(Packing, BytesAreRoundedToTheirStepAndFinerWhereOneValueDominates) {
  if (GetParam() == KernelPath::kExact) return;
  constexpr int64_t kCols = 32 * 40;
  Table x(2, kCols, 15);
  for (int64_t block = 0; block < 40; block += 3) x.at(1, 32 * block + block % 32) = 40.0F;
  for (int64_t i = 32 * 7; i < 32 * 8; ++i) x.at(0, i) = 0.0F;
  const InputFormat format{Kind::kByteBlocks, kCols, 0};
  const auto bytes = pack(InputSource::rows(x.view()), format);
  auto pool = make_pool(GetParam());
  const std::vector<double> read = packed_inputs(*pool, format, x.values, 2);
  const BlockInputs blocks = byte_blocks(const_cast<std::byte*>(bytes.data()), 2, 40).inputs();
  for (int64_t at = 0; at < 80; ++at) {
    const int64_t token = at % 2;
    const int64_t first = at / 2 * 32;
    const BlockInputs block = blocks.at(at);
    double energy = 0;
    double extreme = 0;
    double sums[2] = {0, 0};
    for (int64_t i = 0; i < 32; ++i) {
      const double value = x.at(token, first + i);
      energy += value * value;
      extreme = std::max(extreme, std::fabs(value));
      sums[i / 16] += read[static_cast<size_t>(token * kCols + first + i)];
    }
    const bool is_dominated = extreme * extreme > energy * 27 / 32;
    ASSERT_EQ(block.meta->has_second != 0, is_dominated) << at;
    ASSERT_EQ(is_dominated, token == 1 && at / 2 % 3 == 0) << at;
    const double step = extreme / 127 / (is_dominated ? 254 : 1);
    for (int64_t i = 0; i < 32; ++i) {
      ASSERT_NEAR(read[static_cast<size_t>(token * kCols + first + i)], x.at(token, first + i),
                  step * 0.5001 + extreme * 0x1p-22);
    }
    ASSERT_NEAR(block.meta->half_sum[0], sums[0], extreme * 0x1p-18);
    ASSERT_NEAR(block.meta->half_sum[1], sums[1], extreme * 0x1p-18);
    ASSERT_NEAR(block.meta->sum, sums[0] + sums[1], extreme * 0x1p-18);
  }
}

TEST_P(Packing, NanAndInfinityPassThrough) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    Table x(1, 64, 14);
    x.at(0, 20) = bad;
    const std::vector<float> weight(64, 1.0F);
    const std::vector<float> norm = values(InputSource::normed(x.view(), {weight, 1e-5F}));
    const std::vector<float> product = values(InputSource::swiglu(x.view(), x.view()));
    EXPECT_FALSE(std::isfinite(norm[20]));
    EXPECT_FALSE(std::isfinite(product[20]));
    EXPECT_TRUE(std::isfinite(product[21]));
  }
}

}  // namespace
}  // namespace shoal::tensor

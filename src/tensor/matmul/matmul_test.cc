// The contract of pack_activations and matmul, on every type and every kernel path of this machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>

#include "tensor/matmul_testing.h"

namespace shoal::tensor {
namespace {

using TypeAndPath = std::tuple<DType, KernelPath>;

class Matmul : public testing::TestWithParam<TypeAndPath> {
 protected:
  DType type() const { return std::get<0>(GetParam()); }
  KernelPath path() const { return std::get<1>(GetParam()); }
  int64_t block() const { return dtype_info(type()).block_elements; }

  PackedMatrix pack(const Weight& weight, WorkerPool* pool = nullptr) const {
    return PackedMatrix::pack(weight.view(), Shard::whole(weight.view()), path(), pool).value();
  }

  // Multiplies x [tokens, cols] and expects the naive product; returns the result.
  std::vector<float> expect_product(WorkerPool& pool, const Weight& weight,
                                    const std::vector<float>& x, int64_t tokens) const {
    const PackedMatrix matrix = pack(weight);
    std::vector<float> y = multiply(pool, matrix, x, tokens);
    expect_close(weight, packed_inputs(pool, matrix.input_format(), x, tokens), tokens, y);
    return y;
  }

  void expect_close(const Weight& weight, std::span<const double> inputs, int64_t tokens,
                    std::span<const float> y) const {
    const auto cols = static_cast<size_t>(weight.cols);
    for (int64_t token = 0; token < tokens; ++token) {
      const auto input = inputs.subspan(static_cast<size_t>(token) * cols, cols);
      for (int64_t row = 0; row < weight.rows; ++row) {
        const Expected want =
            expected_output(weight, Shard::whole(weight.view()), row, input, path());
        ASSERT_NEAR(y[static_cast<size_t>(token * weight.rows + row)], want.value, want.tolerance)
            << "token " << token << " row " << row;
      }
    }
  }
};

std::string case_name(const testing::TestParamInfo<TypeAndPath>& info) {
  return std::string(dtype_name(std::get<0>(info.param))) + "_" +
         std::string(kernel_path_name(std::get<1>(info.param)));
}

INSTANTIATE_TEST_SUITE_P(EveryTypeAndPath, Matmul,
                         testing::Combine(testing::ValuesIn(supported_types()),
                                          testing::ValuesIn(runnable_kernel_paths())),
                         case_name);

class MatmulQuantized : public Matmul {};

INSTANTIATE_TEST_SUITE_P(EveryTypeAndPath, MatmulQuantized,
                         testing::Combine(testing::ValuesIn(supported_types(true)),
                                          testing::ValuesIn(runnable_kernel_paths())),
                         case_name);

TEST_P(Matmul, GivesTheNaiveProductForEveryShape) {
  auto pool = make_pool(path());
  for (const int64_t rows : {1, 16, 37}) {
    for (const int64_t blocks : {1, 2, 3, 7}) {
      const Weight weight(type(), rows, blocks * std::max<int64_t>(block(), 32));
      const std::vector<float> x = random_inputs(static_cast<size_t>(weight.cols) * 3, 5, 0.3F);
      expect_product(*pool, weight, x, 3);
    }
  }
}

TEST_P(Matmul, GivesTheNaiveProductForEveryNumberOfTokens) {
  auto pool = make_pool(path());
  const Weight weight(type(), 20, 256);
  for (const int64_t tokens : {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 64}) {
    const std::vector<float> x = random_inputs(static_cast<size_t>(256 * tokens), 6);
    expect_product(*pool, weight, x, tokens);
  }
}

TEST_P(Matmul, ManyTokensAreCutIntoPiecesForTheCache) {
  auto pool = make_pool(path());
  const Weight weight(type(), 3, 2048);
  // Ten tokens over and over, so that only ten need the naive product.
  std::vector<float> x = random_inputs(2048 * 10, 7);
  for (int i = 1; i < 15; ++i) x.insert(x.end(), x.begin(), x.begin() + 2048 * 10);
  const PackedMatrix matrix = pack(weight);
  const std::vector<float> y = multiply(*pool, matrix, x, 150);
  for (size_t i = 30; i < y.size(); ++i) ASSERT_EQ(y[i], y[i % 30]) << "token " << i / 3;
  expect_close(weight, packed_inputs(*pool, matrix.input_format(), x, 150), 10, y);
}

TEST_P(Matmul, ATokensBitsDoNotDependOnItsBatch) {
  auto pool = make_pool(path());
  const Weight weight(type(), 40, 512);
  const PackedMatrix matrix = pack(weight);
  const std::vector<float> x = random_inputs(512 * 23, 8);
  const std::vector<float> together = multiply(*pool, matrix, x, 23);
  for (size_t token = 0; token < 23; ++token) {
    const std::vector<float> one(x.begin() + static_cast<std::ptrdiff_t>(token * 512),
                                 x.begin() + static_cast<std::ptrdiff_t>((token + 1) * 512));
    const std::vector<float> alone = multiply(*pool, matrix, one, 1);
    ASSERT_TRUE(std::equal(alone.begin(), alone.end(),
                           together.begin() + static_cast<std::ptrdiff_t>(token * 40)));
  }
}

TEST_P(Matmul, BitsDoNotDependOnTheNumberOfWorkers) {
  const Weight weight(type(), 100, 256);
  const std::vector<float> x = random_inputs(256 * 5, 9);
  auto one = make_pool(path());
  const std::vector<float> expected = multiply(*one, pack(weight), x, 5);
  for (const int workers : {2, 3, 9}) {
    auto pool = make_pool(path(), workers);
    EXPECT_EQ(multiply(*pool, pack(weight, pool.get()), x, 5), expected);
  }
}

TEST_P(Matmul, WeightsMayLieAtAnyAddress) {
  const Weight weight(type(), 17, 256);
  auto pool = make_pool(path());
  const std::vector<float> x = random_inputs(256, 10);
  const std::vector<float> expected = multiply(*pool, pack(weight), x, 1);
  for (const size_t shift : {1U, 2U, 3U, 7U}) {
    std::vector<std::byte> moved(weight.bytes.size() + shift);
    std::copy(weight.bytes.begin(), weight.bytes.end(),
              moved.begin() + static_cast<std::ptrdiff_t>(shift));
    const MatrixView view{type(), 17, 256, std::span(moved).subspan(shift)};
    const PackedMatrix matrix = PackedMatrix::pack(view, Shard::whole(view), path()).value();
    EXPECT_EQ(multiply(*pool, matrix, x, 1), expected);
  }
}

TEST_P(Matmul, ANonFiniteInputMakesItsTokenNonFiniteAndNoOther) {
  auto pool = make_pool(path());
  const Weight weight(type(), 16, 256);
  const PackedMatrix matrix = pack(weight);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const size_t place : {0U, 77U, 255U}) {
      std::vector<float> x = random_inputs(256 * 3, 12);
      const std::vector<float> clean = multiply(*pool, matrix, x, 3);
      x[256 + place] = bad;
      const std::vector<float> y = multiply(*pool, matrix, x, 3);
      for (size_t row = 0; row < 16; ++row) {
        EXPECT_EQ(y[row], clean[row]);
        EXPECT_FALSE(std::isfinite(y[16 + row]));
        EXPECT_EQ(y[32 + row], clean[32 + row]);
      }
    }
  }
}

TEST_P(Matmul, HugeTinyAndZeroInputsStayRight) {
  auto pool = make_pool(path());
  const Weight weight(type(), 16, 256);
  for (const float size : {1e30F, 1e-25F, 0.0F}) {
    std::vector<float> x = random_inputs(256, 13);
    for (float& value : x) value *= size;
    expect_product(*pool, weight, x, 1);
  }
  // Below 1e-30 a block may count as zero.
  const PackedMatrix matrix = pack(weight);
  for (const float value : multiply(*pool, matrix, std::vector<float>(256, 1e-38F), 1)) {
    EXPECT_NEAR(value, 0.0F, 1e-30F);
  }
}

TEST_P(Matmul, OutputsMayLieInsideWiderRows) {
  auto pool = make_pool(path());
  const Weight weight(type(), 21, 256);
  const PackedMatrix matrix = pack(weight);
  const std::vector<float> x = random_inputs(512, 14);
  const std::vector<float> expected = multiply(*pool, matrix, x, 2);
  Activations activations = Activations::allocate({2, 256}).value();
  std::vector<float> wide(2 * 50, -1.0F);
  const FloatRows all{wide.data(), 2, 50, 50};
  pool->run([&](Worker& me) {
    pack_activations(me, InputSource::rows({x.data(), 2, 256, 256}), matrix.input_format(),
                     activations);
    me.barrier();
    matmul(me, matrix, activations, all.slice(7, 21));
  });
  for (int64_t i = 0; i < 100; ++i) {
    const int64_t col = i % 50 - 7;
    const bool is_output = col >= 0 && col < 21;
    ASSERT_EQ(wide[static_cast<size_t>(i)],
              is_output ? expected[static_cast<size_t>(i / 50 * 21 + col)] : -1.0F);
  }
}

TEST_P(Matmul, ANonFiniteScaleShowsInItsRowOnly) {
  Weight weight(type(), 16, 256);
  const size_t row_size = weight.bytes.size() / 16;
  size_t scale = type() == DType::kF32 ? 2 : 0;
  if (dtype_info(type()).is_quantized) {
    while (!is_scale_byte(type(), scale)) ++scale;
  }
  if (type() == DType::kMXFP4) {
    weight.bytes[5 * row_size] = std::byte{255};
  } else {
    const bool is_half = type() == DType::kF16 || dtype_info(type()).is_quantized;
    const uint16_t nan_bits = is_half ? 0x7e00 : 0x7fc0;
    std::memcpy(&weight.bytes[5 * row_size + scale], &nan_bits, sizeof(nan_bits));
  }
  auto pool = make_pool(path());
  const std::vector<float> y = multiply(*pool, pack(weight), random_floats(256, 15), 1);
  for (size_t row = 0; row < 16; ++row) EXPECT_EQ(std::isfinite(y[row]), row != 5) << row;
}

// The packed kernels read codes in place: all codes and extreme scales must give the right sum.
TEST_P(MatmulQuantized, RandomBlocksOfAFileGiveTheNaiveProduct) {
  Weight weight(type(), 33, 512);
  std::mt19937 random(16);
  const size_t block_bytes = dtype_info(type()).block_bytes;
  ASSERT_TRUE(dtype_info(type()).is_quantized);
  for (size_t i = 0; i < weight.bytes.size(); ++i) {
    const size_t place = i % block_bytes;
    weight.bytes[i] = static_cast<std::byte>(random() & 255U);
    if (!is_scale_byte(type(), place)) continue;
    // Keep scales small and finite: a half's high byte of 0x2c is about 0.06 to 0.12.
    if (type() == DType::kMXFP4) {
      weight.bytes[i] = static_cast<std::byte>(120 + random() % 8);
    } else if (place % 2 == 1) {
      weight.bytes[i] = std::byte{0x2c};
    }
  }
  auto pool = make_pool(path());
  const std::vector<float> x = random_inputs(512 * 2, 17);
  expect_product(*pool, weight, x, 2);
}

// A path whose processor is not at hand is skipped here by its name.
class KernelPathHere : public testing::TestWithParam<KernelPath> {};

INSTANTIATE_TEST_SUITE_P(EveryPath, KernelPathHere, testing::ValuesIn(all_kernel_paths()),
                         [](const testing::TestParamInfo<KernelPath>& info) {
                           return std::string(kernel_path_name(info.param));
                         });

TEST_P(KernelPathHere, IsAmongThoseThatTheseTestsRunOn) {
  if (!kernel_path_runs_here(GetParam())) {
    GTEST_SKIP() << "this processor or system has no " << kernel_path_name(GetParam());
  }
  EXPECT_EQ(make_pool(GetParam())->path(), GetParam());
}

// The tiles' kernels promise the bits of the kernels without.
TEST(MatmulPanel, TilesGiveTheBitsOfTheVectorKernels) {
  for (const auto& [tiles, vectors] : {std::pair{KernelPath::kPortableTiles, KernelPath::kPortable},
                                       std::pair{KernelPath::kAmx, KernelPath::kAvx512}}) {
    if (!kernel_path_runs_here(tiles)) continue;
    for (const DType type : supported_types()) {
      const Weight weight(type, 40, 768);
      const Shard shard{3, 40, 33, 700};
      const std::vector<float> x = random_inputs(667 * 30, 18);
      auto with = make_pool(tiles);
      auto without = make_pool(vectors);
      EXPECT_EQ(
          multiply(*with, PackedMatrix::pack(weight.view(), shard, tiles).value(), x, 30),
          multiply(*without, PackedMatrix::pack(weight.view(), shard, vectors).value(), x, 30))
          << dtype_name(type);
    }
  }
}

}  // namespace
}  // namespace shoal::tensor

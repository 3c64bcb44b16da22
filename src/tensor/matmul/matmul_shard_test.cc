// Shards of a weight: any cut gives the sums of exactly its rows and columns.
#include <gtest/gtest.h>

#include <string>

#include "tensor/matmul_testing.h"

namespace shoal::tensor {
namespace {

using TypeAndPath = std::tuple<DType, KernelPath>;

class MatmulShard : public testing::TestWithParam<TypeAndPath> {
 protected:
  DType type() const { return std::get<0>(GetParam()); }
  KernelPath path() const { return std::get<1>(GetParam()); }
};

INSTANTIATE_TEST_SUITE_P(EveryTypeAndPath, MatmulShard,
                         testing::Combine(testing::ValuesIn(supported_types()),
                                          testing::ValuesIn(runnable_kernel_paths())),
                         [](const testing::TestParamInfo<TypeAndPath>& info) {
                           return std::string(dtype_name(std::get<0>(info.param))) + "_" +
                                  std::string(kernel_path_name(std::get<1>(info.param)));
                         });

TEST_P(MatmulShard, AnyCutGivesTheNaiveProductOfItsPart) {
  auto pool = make_pool(path());
  const Weight weight(type(), 40, 768);
  const std::vector<float> x = random_inputs(768 * 2, 21);
  for (const Shard& shard :
       {Shard{0, 40, 0, 192}, Shard{3, 30, 192, 576}, Shard{16, 32, 576, 768}, Shard{0, 1, 33, 34},
        Shard{5, 40, 1, 767}, Shard{0, 40, 250, 262}, Shard{39, 40, 288, 480}}) {
    const PackedMatrix matrix = PackedMatrix::pack(weight.view(), shard, path()).value();
    const auto cols = static_cast<size_t>(shard.col_end - shard.col_begin);
    std::vector<float> part;
    for (size_t token = 0; token < 2; ++token) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>(token * 768) + shard.col_begin;
      part.insert(part.end(), begin, begin + static_cast<std::ptrdiff_t>(cols));
    }
    const std::vector<float> y = multiply(*pool, matrix, part, 2);
    const std::vector<double> inputs = packed_inputs(*pool, matrix.input_format(), part, 2);
    for (int64_t row = shard.row_begin; row < shard.row_end; ++row) {
      for (size_t token = 0; token < 2; ++token) {
        const Expected want = expected_output(
            weight, shard, row, std::span(inputs).subspan(token * cols, cols), path());
        const auto at = static_cast<int64_t>(token) * matrix.rows() + row - shard.row_begin;
        ASSERT_NEAR(y[static_cast<size_t>(at)], want.value, want.tolerance)
            << "columns " << shard.col_begin << " to " << shard.col_end << ", row " << row;
      }
    }
  }
}

TEST_P(MatmulShard, EmptyShardsGiveNothingOrZeros) {
  auto pool = make_pool(path(), 2);
  const Weight weight(type(), 20, 256);
  const PackedMatrix no_rows =
      PackedMatrix::pack(weight.view(), {7, 7, 0, 256}, path(), pool.get()).value();
  EXPECT_TRUE(multiply(*pool, no_rows, random_floats(256, 22), 1).empty());
  const PackedMatrix no_cols =
      PackedMatrix::pack(weight.view(), {0, 20, 100, 100}, path(), pool.get()).value();
  EXPECT_EQ(multiply(*pool, no_cols, {}, 2), std::vector<float>(40, 0.0F));
  EXPECT_EQ(no_rows.bytes() + no_cols.bytes(), 0U);
}

TEST_P(MatmulShard, APackedShardNeedsAboutItsShareOfTheFile) {
  const Weight weight(type(), 16, 1024);
  const PackedMatrix half = PackedMatrix::pack(weight.view(), {0, 16, 512, 1024}, path()).value();
  const auto share = static_cast<double>(weight.bytes.size()) / 2;
  EXPECT_NEAR(static_cast<double>(half.bytes()), share, share * 0.05);
}

TEST(MatmulPack, WhatCannotBePackedIsRefusedWithItsReason) {
  const Weight weight(DType::kQ4_0, 4, 64);
  const auto refuse = [](const MatrixView& view, const Shard& shard) {
    const auto result = PackedMatrix::pack(view, shard, KernelPath::kPortable);
    EXPECT_FALSE(result.is_ok());
    EXPECT_EQ(result.status().code(), StatusCode::kRequest);
    return result.status().message();
  };
  MatrixView view = weight.view();
  EXPECT_NE(refuse({DType::kIQ2_XS, 1, 256, view.bytes}, {}).find("IQ2_XS"), std::string::npos);
  EXPECT_NE(refuse({DType::kQ4_K, 1, 896, view.bytes}, {}).find("896"), std::string::npos);
  EXPECT_NE(refuse({DType::kQ4_0, 5, 64, view.bytes}, {}).find("bytes"), std::string::npos);
  EXPECT_NE(refuse({DType::kQ4_0, -1, 64, view.bytes}, {}).find("negative"), std::string::npos);
  EXPECT_NE(refuse({DType::kQ4_0, int64_t{1} << 60, 64, view.bytes}, {}).find("bytes"),
            std::string::npos);
  for (const Shard& shard :
       {Shard{0, 5, 0, 64}, Shard{-1, 4, 0, 64}, Shard{3, 2, 0, 64}, Shard{0, 4, 10, 65}}) {
    EXPECT_NE(refuse(view, shard).find("outside"), std::string::npos);
  }
}

}  // namespace
}  // namespace shoal::tensor

// The contract of matmul_pairs, on every type and every kernel path of this machine: the bits of
// matmul.
#include "tensor/matmul/matmul_pairs.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tensor/matmul_testing.h"

namespace shoal::tensor {
namespace {

using TypeAndPath = std::tuple<DType, KernelPath>;

class MatmulPairs : public testing::TestWithParam<TypeAndPath> {
 protected:
  static constexpr int64_t kBlockRows = 32;
  static constexpr int64_t kBlocks = 3;
  static constexpr int64_t kTokens = 13;
  static constexpr int64_t kCols = 256;

  DType type() const { return std::get<0>(GetParam()); }
  KernelPath path() const { return std::get<1>(GetParam()); }

  // [pairs, kBlockRows] by matmul_pairs, of columns [begin, end).
  std::vector<float> multiply_pairs(const PackedMatrix& matrix, const std::vector<float>& x,
                                    const std::vector<RowBlockToken>& pairs, int workers) const {
    auto pool = make_pool(path(), workers);
    const int64_t cols = matrix.cols();
    Activations activations = Activations::allocate({kTokens, cols}).value();
    EXPECT_TRUE(pool->reserve_scratch(matmul_pairs_scratch_bytes(path(), cols) +
                                      packing_scratch_bytes(cols))
                    .is_ok());
    std::vector<float> y(pairs.size() * kBlockRows, -99.0F);
    const auto count = static_cast<int64_t>(pairs.size());
    pool->run([&](Worker& me) {
      pack_activations(me, InputSource::rows({x.data(), kTokens, cols, cols}),
                       matrix.input_format(), activations);
      me.barrier();
      matmul_pairs(me, matrix, activations, {kBlockRows, pairs},
                   {y.data(), count, kBlockRows, kBlockRows});
    });
    return y;
  }

  // The same numbers out of the whole product.
  void expect_whole(const Shard& shard, const std::vector<RowBlockToken>& pairs,
                    int workers) const {
    const Weight weight(type(), kBlocks * kBlockRows, kCols);
    const PackedMatrix matrix = PackedMatrix::pack(weight.view(), shard, path()).value();
    const std::vector<float> x = random_inputs(static_cast<size_t>(kTokens * matrix.cols()), 31);
    auto pool = make_pool(path());
    const std::vector<float> whole = multiply(*pool, matrix, x, kTokens);
    const std::vector<float> y = multiply_pairs(matrix, x, pairs, workers);
    for (size_t i = 0; i < pairs.size(); ++i) {
      for (int64_t r = 0; r < kBlockRows; ++r) {
        const int64_t at = pairs[i].token * matrix.rows() + pairs[i].row_block * kBlockRows + r;
        ASSERT_EQ(y[i * kBlockRows + static_cast<size_t>(r)], whole[static_cast<size_t>(at)])
            << "pair " << i << " row " << r;
      }
    }
  }

  static constexpr Shard kWhole{0, kBlocks* kBlockRows, 0, kCols};
};

INSTANTIATE_TEST_SUITE_P(EveryTypeAndPath, MatmulPairs,
                         testing::Combine(testing::ValuesIn(supported_types()),
                                          testing::ValuesIn(runnable_kernel_paths())),
                         [](const testing::TestParamInfo<TypeAndPath>& info) {
                           return std::string(dtype_name(std::get<0>(info.param))) + "_" +
                                  std::string(kernel_path_name(std::get<1>(info.param)));
                         });

TEST_P(MatmulPairs, GivesTheBitsOfTheWholeProduct) {
  // Block 0 has 41 tokens (more than are gathered at once), block 1 none, block 2 all, block 0 one
  // more.
  std::vector<RowBlockToken> pairs(41);
  for (int64_t i = 0; i < 41; ++i) pairs[static_cast<size_t>(i)] = {0, i * 5 % kTokens};
  for (int64_t token = 0; token < kTokens; ++token) pairs.push_back({2, token});
  pairs.push_back({0, 12});
  expect_whole(kWhole, pairs, 1);
  expect_whole(kWhole, pairs, 3);
}

TEST_P(MatmulPairs, PairsMayComeInAnyOrder) {
  std::mt19937 random(32);
  std::vector<RowBlockToken> pairs(50);
  for (RowBlockToken& pair : pairs) {
    pair = {static_cast<int64_t>(random() % kBlocks), static_cast<int64_t>(random() % kTokens)};
  }
  expect_whole(kWhole, pairs, 2);
}

TEST_P(MatmulPairs, AShardThatCutsABlockGivesItsPart) {
  expect_whole({0, kBlocks * kBlockRows, 40, 220}, {{1, 3}, {1, 4}, {0, 12}}, 1);
}

TEST_P(MatmulPairs, NoPairsAndNoColumnsGiveNothingAndZeros) {
  const Weight weight(type(), kBlocks * kBlockRows, kCols);
  const PackedMatrix whole = PackedMatrix::pack(weight.view(), kWhole, path()).value();
  EXPECT_TRUE(multiply_pairs(whole, random_floats(kTokens * kCols, 33), {}, 2).empty());
  const Shard no_cols{0, kBlocks * kBlockRows, 96, 96};
  const PackedMatrix empty = PackedMatrix::pack(weight.view(), no_cols, path()).value();
  EXPECT_EQ(multiply_pairs(empty, {}, {{0, 1}, {2, 2}}, 2),
            std::vector<float>(2 * kBlockRows, 0.0F));
}

}  // namespace
}  // namespace shoal::tensor

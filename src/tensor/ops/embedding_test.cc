#include "tensor/ops/embedding.h"

#include <gtest/gtest.h>

#include "tensor/matmul_testing.h"

namespace shoal::tensor {
namespace {

TEST(Embedding, GivesTheRowsOfItsTokens) {
  const std::vector<float> values = random_floats(size_t{10} * 64, 10);
  for (const DType type : {DType::kF32, DType::kF16, DType::kQ8_0}) {
    const std::vector<std::byte> bytes = quantize_matrix(type, values, 64);
    const std::vector<int32_t> tokens = {9, 0, 3, 3, 5};
    std::vector<float> out(5 * 64);
    auto pool = std::move(WorkerPool::create({.workers = 2})).value();
    pool->run(
        [&](Worker& me) { embedding(me, {type, 10, 64, bytes}, tokens, {out.data(), 5, 64, 64}); });
    for (size_t i = 0; i < out.size(); ++i) {
      const auto row = static_cast<size_t>(tokens[i / 64]);
      ASSERT_NEAR(out[i], values[row * 64 + i % 64], type == DType::kF32 ? 0 : 0.02);
    }
  }
}

}  // namespace
}  // namespace shoal::tensor

#include "tensor/dtype.h"

#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace shoal::tensor {
namespace {

TEST(DType, EveryGgufNumberNamesOneTypeAndBack) {
  std::set<std::string_view> names;
  for (uint32_t id = 0; id < 64; ++id) {
    const auto type = dtype_from_gguf(id);
    if (!type.has_value()) continue;
    EXPECT_EQ(dtype_info(*type).gguf_id, id);
    EXPECT_EQ(dtype_from_name(dtype_name(*type)), *type);
    EXPECT_TRUE(names.insert(dtype_name(*type)).second);
  }
  EXPECT_EQ(names.size(), 34U);
}

TEST(DType, WithdrawnAndUnknownNumbersHaveNoType) {
  for (const uint32_t id : {4U, 5U, 31U, 32U, 33U, 36U, 37U, 38U, 9999U}) {
    EXPECT_FALSE(dtype_from_gguf(id).has_value()) << id;
  }
  EXPECT_FALSE(dtype_from_name("q4_k").has_value());
}

TEST(DType, TheSupportedOnesAreNamedInErrors) {
  EXPECT_EQ(supported_dtype_names(),
            "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K, Q2_K, Q3_K, IQ4_NL, "
            "IQ4_XS or MXFP4");
}

TEST(DType, BlocksHaveTheSizesOfTheFormat) {
  EXPECT_EQ(row_bytes(DType::kQ4_1, 576), 576U / 32 * 20);
  EXPECT_EQ(row_bytes(DType::kQ6_K, 512), 420U);
  EXPECT_EQ(row_bytes(DType::kBF16, 3), 6U);
  EXPECT_EQ(row_bytes(DType::kMXFP4, 64), 34U);
  EXPECT_EQ(row_bytes(DType::kF32, 0), 0U);
}

TEST(DType, ARowThatIsNoWholeNumberOfBlocksHasNoSize) {
  EXPECT_FALSE(row_bytes(DType::kQ4_K, 896).has_value());
  EXPECT_FALSE(row_bytes(DType::kQ8_0, 33).has_value());
  EXPECT_FALSE(row_bytes(DType::kF64, std::numeric_limits<uint64_t>::max()).has_value());
}

}  // namespace
}  // namespace shoal::tensor

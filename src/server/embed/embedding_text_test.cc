#include "server/embed/embedding_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

namespace shoal::server {
namespace {

TEST(EmbeddingText, AVectorIsCutAndScaledToTheLengthOne) {
  const std::vector<float> values = {3, 4, 12};
  EXPECT_EQ(normalize(values, 2), (std::vector<float>{0.6F, 0.8F}));
  const std::vector<float> unit = normalize(values, 3);
  EXPECT_FLOAT_EQ(unit[2], 12.0F / 13);
  EXPECT_EQ(normalize(std::vector<float>{0, 0}, 2), (std::vector<float>{0, 0}));
  // Squares that float32 would not hold.
  const float large = std::numeric_limits<float>::max() / 2;
  EXPECT_FLOAT_EQ(normalize(std::vector<float>{large, -large}, 2)[1], -std::sqrt(0.5F));
}

TEST(EmbeddingText, NumbersGiveTheSameFloatsBack) {
  const std::vector<float> values = {
      0.1F, -1e-38F, 1, 0, 0.33333334F, -0.0F, std::numeric_limits<float>::denorm_min()};
  const auto json = nlohmann::json::parse(to_numbers(values));
  ASSERT_EQ(json.size(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    EXPECT_EQ(static_cast<float>(json[i].get<double>()), values[i]);
  }
  EXPECT_EQ(to_numbers({}), "[]");
  EXPECT_EQ(to_numbers(std::vector<float>{0.25F, 1}), "[0.25,1]");
}

TEST(EmbeddingText, Base64IsThatOfLittleEndianFloats) {
  EXPECT_EQ(to_base64({}), "");
  EXPECT_EQ(to_base64(std::vector<float>{1}), "AACAPw==");          // 00 00 80 3f
  EXPECT_EQ(to_base64(std::vector<float>{1, -2}), "AACAPwAAAMA=");  // 00 00 80 3f 00 00 00 c0
  EXPECT_EQ(to_base64(std::vector<float>{1, 1, 1}), "AACAPwAAgD8AAIA/");
}

}  // namespace
}  // namespace shoal::server

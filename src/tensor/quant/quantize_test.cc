#include "tensor/quant/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tensor/quant/quant_block.h"

namespace shoal::tensor {
namespace {

constexpr DType kQuantized[] = {DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,   DType::kQ5_1,
                                DType::kQ8_0, DType::kQ4_K, DType::kQ5_K,   DType::kQ6_K,
                                DType::kQ2_K, DType::kQ3_K, DType::kIQ4_NL, DType::kIQ4_XS,
                                DType::kMXFP4};

std::vector<float> random_row(size_t count, float offset = 0.0F) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(offset, 1.0F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

std::vector<float> round_trip(DType type, const std::vector<float>& values) {
  const auto cols = static_cast<int64_t>(values.size());
  const std::vector<std::byte> bytes = quantize_matrix(type, values, cols);
  std::vector<float> out(values.size());
  dequantize_row(type, bytes, 0, cols, out.data());
  return out;
}

std::vector<std::byte> from_hex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

TEST(Dequantize, EveryTypeAgreesWithAnIndependentReader) {
  std::ifstream file(SHOAL_TENSOR_TESTDATA "/dequantized.txt");
  std::string name;
  std::string blocks;
  std::string values;
  int types = 0;
  while (file >> name >> blocks >> values) {
    const DType type = dtype_from_name(name).value();
    const std::vector<std::byte> row = from_hex(blocks);
    const std::vector<std::byte> expected = from_hex(values);
    std::vector<float> out(expected.size() / sizeof(float));
    dequantize_row(type, row, 0, static_cast<int64_t>(out.size()), out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      const float want = load_float(&expected[i * sizeof(float)]);
      // The same float32 formula; the order of its two products may differ by a rounding.
      ASSERT_NEAR(out[i], want, 2e-7F * std::fabs(want) + 1e-6F) << name << " element " << i;
    }
    ++types;
  }
  EXPECT_EQ(types, 14);
}

TEST(Dequantize, APartOfARowEqualsThatPartOfTheWhole) {
  const std::vector<float> values = random_row(768);
  for (const DType type : kQuantized) {
    const std::vector<std::byte> bytes = quantize_matrix(type, values, 768);
    const std::vector<float> whole = round_trip(type, values);
    for (const auto& [begin, end] : {std::pair{0, 0}, {5, 6}, {31, 33}, {192, 576}, {250, 768}}) {
      std::vector<float> part(static_cast<size_t>(end - begin) + 1, -77.0F);
      dequantize_row(type, bytes, begin, end, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end() - 1, whole.begin() + begin))
          << dtype_name(type);
      EXPECT_EQ(part.back(), -77.0F);
    }
  }
}

// Half a step of the coarsest block, plus what rounding the scales (11-bit halves; 6 bits in Q4_K
// and Q5_K, 8 in Q6_K, 4 in Q2_K, signed 6 in Q3_K and IQ4_XS) costs at the block's extremes.
double error_bound(DType type, double range, double extreme) {
  switch (type) {
    case DType::kQ4_0:
      return extreme / 8;  // the end opposite to the extreme has one code less
    case DType::kQ4_1:
      return range / 15 * 0.55;
    case DType::kQ5_0:
      return extreme / 16;
    case DType::kQ5_1:
      return range / 31 * 0.6;
    case DType::kQ8_0:
      return extreme / 127 * 0.6;
    case DType::kQ4_K:
      return (range / 15 + range / 63) * 0.8;
    case DType::kQ5_K:
      return (range / 31 + range / 63) * 0.8;
    case DType::kQ2_K:
      return (range / 3 + range / 15) * 0.8;
    case DType::kQ3_K:
      return extreme / 4 * 1.15;  // as in Q4_0
    case DType::kIQ4_NL:
      return extreme * 14.1 / 127;  // the table reaches from -127 to 113
    case DType::kIQ4_XS:
      return extreme * (14.1 / 127 + 0.6 / 31);
    case DType::kMXFP4:
      return extreme * 0.26;  // up to 8 times the scale, and codes reach 6
    default:
      return extreme / 32 * 1.1;
  }
}

TEST(Quantize, ErrorsStayWithinHalfAStep) {
  for (const DType type : kQuantized) {
    for (const float offset : {0.0F, 2.0F, -3.0F}) {
      const std::vector<float> values = random_row(1024, offset);
      const std::vector<float> back = round_trip(type, values);
      double extreme = 0;
      double low = 0;
      double high = 0;
      for (const float value : values) {
        extreme = std::max(extreme, std::fabs(static_cast<double>(value)));
        low = std::min(low, static_cast<double>(value));
        high = std::max(high, static_cast<double>(value));
      }
      for (size_t i = 0; i < values.size(); ++i) {
        ASSERT_NEAR(back[i], values[i], error_bound(type, high - low, extreme))
            << dtype_name(type) << " at " << i;
      }
    }
  }
}

TEST(Quantize, QuantizingWhatWasQuantizedChangesLittle) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ4_0, DType::kQ8_0}) {
    const std::vector<float> once = round_trip(type, random_row(256));
    const std::vector<float> twice = round_trip(type, once);
    for (size_t i = 0; i < once.size(); ++i) {
      ASSERT_NEAR(once[i], twice[i], 2e-3F * std::fabs(once[i]) + 1e-6F) << dtype_name(type);
    }
  }
}

TEST(Quantize, ZerosStayZeros) {
  for (const DType type : kQuantized) {
    for (const float value : round_trip(type, std::vector<float>(256, 0.0F))) {
      ASSERT_EQ(value, 0.0F) << dtype_name(type);
    }
  }
}

// The block format's own name for a broken scale; 0 is a scale like any other.
TEST(Dequantize, AnMxfp4ScaleOf255IsNotANumber) {
  std::vector<std::byte> block(17, std::byte{0x21});
  std::vector<float> out(32);
  block[0] = std::byte{255};
  dequantize_row(DType::kMXFP4, block, 0, 32, out.data());
  EXPECT_TRUE(std::isnan(out[0]));
  block[0] = std::byte{0};
  dequantize_row(DType::kMXFP4, block, 0, 32, out.data());
  EXPECT_EQ(out[0], 0x1p-128F);
  EXPECT_EQ(out[16], 0x1p-127F);
}

// The scales of a super-block are the fiddliest part of the format.
TEST(Quantize, ScalesOfASuperBlockSurviveTheirPacking) {
  std::vector<float> values(256);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t sub = i / 32;
    const auto size = static_cast<float>(sub + 1);
    values[i] = size * (i % 2 == 0 ? 1.0F : -1.0F);
  }
  for (const DType type : {DType::kQ4_K, DType::kQ5_K, DType::kQ6_K}) {
    const std::vector<float> back = round_trip(type, values);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_NEAR(back[i], values[i], 0.07F * std::fabs(values[i])) << dtype_name(type) << i;
    }
  }
}

}  // namespace
}  // namespace shoal::tensor

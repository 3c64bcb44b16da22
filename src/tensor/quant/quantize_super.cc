// The quantizers of types with super-blocks of 256 elements.
#include <array>

#include "base/check.h"
#include "tensor/float16.h"
#include "tensor/quant/quantize_block.h"

namespace shoal::tensor {
namespace {

constexpr size_t kParts = 16;  // of 16 elements, in a super-block

void store_scale_min(std::byte* packed, size_t sub, ScaleMin codes) {
  auto* s = reinterpret_cast<uint8_t*>(packed);
  if (sub < 4) {
    s[sub] = static_cast<uint8_t>(s[sub] | codes.scale);
    s[sub + 4] = static_cast<uint8_t>(s[sub + 4] | codes.min);
    return;
  }
  s[sub + 4] = static_cast<uint8_t>((codes.scale & 15) | ((codes.min & 15) << 4));
  s[sub - 4] = static_cast<uint8_t>(s[sub - 4] | ((codes.scale >> 4) << 6));
  s[sub] = static_cast<uint8_t>(s[sub] | ((codes.min >> 4) << 6));
}

// Q4_K, Q5_K: per 32 a scale and a minimum (at most 0), themselves 6-bit codes of two halves.
void quantize_k_with_minimum(DType type, Values values, std::byte* out) {
  const int code_max = type == DType::kQ4_K ? 15 : 31;
  std::array<float, kBlocksPerSuper> scales{};
  std::array<float, kBlocksPerSuper> mins{};
  for (size_t sub = 0; sub < scales.size(); ++sub) {
    const Values block = values.subspan(sub * 32, 32);
    const auto [low, high] = std::minmax_element(block.begin(), block.end());
    mins[sub] = std::max(0.0F, -*low);
    scales[sub] = std::max(0.0F, (*high + mins[sub]) / static_cast<float>(code_max));
  }
  const uint16_t half_scale = float_to_f16(*std::max_element(scales.begin(), scales.end()) / 63);
  const uint16_t half_min = float_to_f16(*std::max_element(mins.begin(), mins.end()) / 63);
  store_f16(out + q4_k::kScale, half_scale);
  store_f16(out + q4_k::kMin, half_min);
  for (size_t sub = 0; sub < scales.size(); ++sub) {
    store_scale_min(out + q4_k::kScales, sub,
                    {code_of(scales[sub], f16_to_float(half_scale), 0.0F, 63),
                     code_of(mins[sub], f16_to_float(half_min), 0.0F, 63)});
  }
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  uint8_t* nibbles = bytes + (type == DType::kQ4_K ? q4_k::kCodes : q5_k::kCodes);
  for (size_t sub = 0; sub < scales.size(); ++sub) {
    const BlockScales block = load_scales(type, out, static_cast<int64_t>(sub));
    for (size_t i = 0; i < 32; ++i) {
      const uint8_t code =
          code_of(values[sub * 32 + i] - block.offset[0], block.scale[0], 0.0F, code_max);
      uint8_t& nibble = nibbles[sub / 2 * 32 + i];
      nibble = static_cast<uint8_t>(nibble | ((code & 15) << (4 * (sub % 2))));
      if (type == DType::kQ4_K) continue;
      uint8_t& high = bytes[q5_k::kHighBits + i];
      high = static_cast<uint8_t>(high | ((code >> 4) << sub));
    }
  }
}

// Scales of Count equal parts of a super-block, and the largest of their magnitudes.
template <size_t Count>
struct SignedScales {
  std::array<float, Count> scales{};
  float largest = 0;
};

// `lowest` is the code that a part's extreme value gets.
template <size_t Count>
SignedScales<Count> signed_scales(Values values, float lowest) {
  const size_t length = values.size() / Count;
  SignedScales<Count> result;
  for (size_t part = 0; part < Count; ++part) {
    float& scale = result.scales[part];
    scale = extreme_of(values.subspan(part * length, length)) / lowest;
    result.largest = std::max(result.largest, std::fabs(scale));
  }
  return result;
}

// Q6_K: per 16 a signed 8-bit code of one half.
void quantize_q6_k(Values values, std::byte* out) {
  const auto [scales, scale_max] = signed_scales<kParts>(values, -32.0F);
  const uint16_t half = float_to_f16(scale_max / 127.0F);
  store_f16(out + q6_k::kScale, half);
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  for (size_t part = 0; part < scales.size(); ++part) {
    const uint8_t code = code_of(scales[part], f16_to_float(half), 128.0F, 255);
    bytes[q6_k::kScales + part] = code ^ 0x80U;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const BlockScales block = load_scales(DType::kQ6_K, out, static_cast<int64_t>(i / 32));
    const uint8_t code = code_of(values[i], block.scale[i / 16 % 2], 32.0F, 63);
    const size_t half_index = i / 128;
    const size_t quarter = i / 32 % 4;
    uint8_t& nibble = bytes[q6_k::kCodes + half_index * 64 + (quarter & 1) * 32 + i % 32];
    nibble = static_cast<uint8_t>(nibble | ((code & 15) << (4 * (quarter / 2))));
    uint8_t& high = bytes[q6_k::kHighBits + half_index * 32 + i % 32];
    high = static_cast<uint8_t>(high | ((code >> 4) << (2 * quarter)));
  }
}

// Two bits of element i of a Q2_K or Q3_K super-block.
void store_pair(uint8_t* bytes, size_t i, int pair) {
  uint8_t& byte = bytes[i / 128 * 32 + i % 32];
  byte = static_cast<uint8_t>(byte | (pair << (2 * (i / 32 % 4))));
}

// Q2_K: per 16 a scale and a minimum (at most 0), themselves 4-bit codes of two halves.
void quantize_q2_k(Values values, std::byte* out) {
  std::array<float, kParts> scales{};
  std::array<float, kParts> mins{};
  for (size_t part = 0; part < kParts; ++part) {
    const Values block = values.subspan(part * 16, 16);
    const auto [low, high] = std::minmax_element(block.begin(), block.end());
    mins[part] = std::max(0.0F, -*low);
    scales[part] = std::max(0.0F, (*high + mins[part]) / 3.0F);
  }
  const uint16_t half_scale = float_to_f16(*std::max_element(scales.begin(), scales.end()) / 15);
  const uint16_t half_min = float_to_f16(*std::max_element(mins.begin(), mins.end()) / 15);
  store_f16(out + q2_k::kScale, half_scale);
  store_f16(out + q2_k::kMin, half_min);
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  for (size_t part = 0; part < kParts; ++part) {
    const int scale = code_of(scales[part], f16_to_float(half_scale), 0.0F, 15);
    const int min = code_of(mins[part], f16_to_float(half_min), 0.0F, 15);
    bytes[q2_k::kScales + part] = static_cast<uint8_t>(scale | (min << 4));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const BlockScales block = load_scales(DType::kQ2_K, out, static_cast<int64_t>(i / 32));
    const size_t half = i / 16 % 2;
    store_pair(bytes + q2_k::kCodes, i,
               code_of(values[i] - block.offset[half], block.scale[half], 0.0F, 3));
  }
}

// Q3_K: per 16 a signed 6-bit code of one half.
void quantize_q3_k(Values values, std::byte* out) {
  const auto [scales, scale_max] = signed_scales<kParts>(values, -4.0F);
  const uint16_t half = float_to_f16(scale_max / 31.0F);
  store_f16(out + q3_k::kScale, half);
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  for (size_t part = 0; part < kParts; ++part) {
    const int code = code_of(scales[part], f16_to_float(half), 32.0F, 63);
    uint8_t& low = bytes[q3_k::kScales + part % 8];
    low = static_cast<uint8_t>(low | ((code & 15) << (4 * (part / 8))));
    uint8_t& high = bytes[q3_k::kScales + 8 + part % 4];
    high = static_cast<uint8_t>(high | ((code >> 4) << (2 * (part / 4))));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    const BlockScales block = load_scales(DType::kQ3_K, out, static_cast<int64_t>(i / 32));
    const uint8_t code = code_of(values[i], block.scale[i / 16 % 2], 4.0F, 7);
    store_pair(bytes + q3_k::kCodes, i, code & 3);
    uint8_t& high = bytes[q3_k::kHighBits + i % 32];
    high = static_cast<uint8_t>(high | ((code >> 2) << (i / 32)));
  }
}

// IQ4_XS: per 32 a signed 6-bit code of one half.
void quantize_iq4_xs(Values values, std::byte* out) {
  const auto [scales, scale_max] = signed_scales<kBlocksPerSuper>(values, -127.0F);
  const uint16_t half = float_to_f16(scale_max / 31.0F);
  store_f16(out + iq4_xs::kScale, half);
  auto* bytes = reinterpret_cast<uint8_t*>(out);
  uint32_t high_scales = 0;
  for (size_t sub = 0; sub < scales.size(); ++sub) {
    const int code = code_of(scales[sub], f16_to_float(half), 32.0F, 63);
    uint8_t& low = bytes[iq4_xs::kLowScales + sub / 2];
    low = static_cast<uint8_t>(low | ((code & 15) << (4 * (sub % 2))));
    high_scales |= static_cast<uint32_t>(code >> 4) << (2 * sub);
  }
  store_f16(out + iq4_xs::kHighScales, static_cast<uint16_t>(high_scales));
  for (size_t sub = 0; sub < scales.size(); ++sub) {
    const float scale = load_scales(DType::kIQ4_XS, out, static_cast<int64_t>(sub)).scale[0];
    Codes codes;
    for (size_t i = 0; i < codes.size(); ++i) {
      codes[i] = nearest_in_table(kIq4Values, values[sub * 32 + i], scale);
    }
    store_split_nibbles(codes, out + iq4_xs::kCodes + 16 * sub);
  }
}

}  // namespace

void quantize_super_block(DType type, Values values, std::byte* out) {
  switch (type) {
    case DType::kQ2_K:
      return quantize_q2_k(values, out);
    case DType::kQ3_K:
      return quantize_q3_k(values, out);
    case DType::kQ4_K:
    case DType::kQ5_K:
      return quantize_k_with_minimum(type, values, out);
    case DType::kQ6_K:
      return quantize_q6_k(values, out);
    case DType::kIQ4_XS:
      return quantize_iq4_xs(values, out);
    default:
      CHECK_MSG(false, "a type without super-blocks");
  }
}

}  // namespace shoal::tensor

#include "tensor/quant/quantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/float16.h"
#include "tensor/quant/quant_block.h"

namespace shoal::tensor {
namespace {

using Values = std::span<const float>;

void store_f16(std::byte* out, uint16_t value) { std::memcpy(out, &value, sizeof(value)); }

// The code of a value: (value - offset) / scale + center, rounded, within [0, code_max].
uint8_t code_of(float value, float scale, float offset_codes, int code_max) {
  if (scale == 0.0F || !std::isfinite(scale)) return static_cast<uint8_t>(offset_codes);
  const float code = std::nearbyint(value / scale + offset_codes);
  if (!(code > 0.0F)) return 0;
  return static_cast<uint8_t>(std::min(code, static_cast<float>(code_max)));
}

float extreme_of(Values values) {
  float extreme = 0;
  for (const float value : values) {
    if (std::fabs(value) > std::fabs(extreme)) extreme = value;
  }
  return extreme;
}

void store_split_nibbles(const Codes& codes, std::byte* out) {
  for (size_t i = 0; i < 16; ++i) {
    out[i] = static_cast<std::byte>((codes[i] & 15) | ((codes[i + 16] & 15) << 4));
  }
}

void store_high_bits(const Codes& codes, std::byte* out) {
  uint32_t word = 0;
  for (size_t i = 0; i < codes.size(); ++i) word |= static_cast<uint32_t>(codes[i] >> 4) << i;
  std::memcpy(out, &word, sizeof(word));
}

// Q4_0, Q5_0: the value of largest magnitude gets code 0, so that its sign's range is used fully.
void quantize_symmetric(DType type, Values values, std::byte* out) {
  const int center = code_center(type);
  const uint16_t half = float_to_f16(extreme_of(values) / static_cast<float>(-center));
  const float scale = f16_to_float(half);
  Codes codes;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = code_of(values[i], scale, static_cast<float>(center), 2 * center - 1);
  }
  store_f16(out, half);
  if (type == DType::kQ4_0) return store_split_nibbles(codes, out + 2);
  store_high_bits(codes, out + 2);
  store_split_nibbles(codes, out + 6);
}

// Q4_1, Q5_1: codes span [minimum, maximum].
void quantize_with_minimum(DType type, Values values, std::byte* out) {
  const int code_max = type == DType::kQ4_1 ? 15 : 31;
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const uint16_t half_scale = float_to_f16((*high - *low) / static_cast<float>(code_max));
  const uint16_t half_min = float_to_f16(*low);
  const float scale = f16_to_float(half_scale);
  const float min = f16_to_float(half_min);
  Codes codes;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = code_of(values[i] - min, scale, 0.0F, code_max);
  }
  store_f16(out, half_scale);
  store_f16(out + 2, half_min);
  if (type == DType::kQ4_1) return store_split_nibbles(codes, out + 4);
  store_high_bits(codes, out + 4);
  store_split_nibbles(codes, out + 8);
}

void quantize_q8_0(Values values, std::byte* out) {
  const uint16_t half = float_to_f16(std::fabs(extreme_of(values)) / 127.0F);
  const float scale = f16_to_float(half);
  store_f16(out, half);
  for (size_t i = 0; i < values.size(); ++i) {
    const uint8_t code = code_of(values[i], scale, 128.0F, 255);
    out[2 + i] = static_cast<std::byte>(code ^ 0x80U);
  }
}

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
          code_of(values[sub * 32 + i] - block.offset, block.scale[0], 0.0F, code_max);
      uint8_t& nibble = nibbles[sub / 2 * 32 + i];
      nibble = static_cast<uint8_t>(nibble | ((code & 15) << (4 * (sub % 2))));
      if (type == DType::kQ4_K) continue;
      uint8_t& high = bytes[q5_k::kHighBits + i];
      high = static_cast<uint8_t>(high | ((code >> 4) << sub));
    }
  }
}

// Q6_K: per 16 a signed 8-bit code of one half.
void quantize_q6_k(Values values, std::byte* out) {
  std::array<float, 16> scales{};
  float scale_max = 0;
  for (size_t part = 0; part < scales.size(); ++part) {
    scales[part] = extreme_of(values.subspan(part * 16, 16)) / -32.0F;
    scale_max = std::max(scale_max, std::fabs(scales[part]));
  }
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

void quantize_block(DType type, Values values, std::byte* out) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ5_0:
      return quantize_symmetric(type, values, out);
    case DType::kQ4_1:
    case DType::kQ5_1:
      return quantize_with_minimum(type, values, out);
    case DType::kQ8_0:
      return quantize_q8_0(values, out);
    case DType::kQ4_K:
    case DType::kQ5_K:
      return quantize_k_with_minimum(type, values, out);
    case DType::kQ6_K:
      return quantize_q6_k(values, out);
    case DType::kF32:
      std::memcpy(out, values.data(), sizeof(float));
      return;
    case DType::kF16:
      return store_f16(out, float_to_f16(values[0]));
    case DType::kBF16:
      return store_f16(out, float_to_bf16(values[0]));
    default:
      CHECK_MSG(false, "quantize_row to a type that is not supported");
  }
}

}  // namespace

void quantize_row(DType type, std::span<const float> values, std::span<std::byte> out) {
  const DTypeInfo& info = dtype_info(type);
  const auto bytes = row_bytes(type, values.size());
  CHECK(bytes.has_value() && *bytes == out.size());
  std::fill(out.begin(), out.end(), std::byte{0});
  for (size_t block = 0; block * info.block_elements < values.size(); ++block) {
    quantize_block(type, values.subspan(block * info.block_elements, info.block_elements),
                   out.data() + block * info.block_bytes);
  }
}

std::vector<std::byte> quantize_matrix(DType type, std::span<const float> values, int64_t cols) {
  CHECK(cols > 0 && values.size() % static_cast<size_t>(cols) == 0);
  const auto bytes = row_bytes(type, static_cast<uint64_t>(cols));
  CHECK(bytes.has_value());
  const size_t rows = values.size() / static_cast<size_t>(cols);
  std::vector<std::byte> out(rows * *bytes);
  for (size_t row = 0; row < rows; ++row) {
    quantize_row(type, values.subspan(row * static_cast<size_t>(cols), static_cast<size_t>(cols)),
                 std::span(out).subspan(row * *bytes, *bytes));
  }
  return out;
}

}  // namespace shoal::tensor

#include "tensor/quant/quant_block.h"

#include <bit>
#include <limits>

#include "base/check.h"
#include "tensor/cpu/packed_layout.h"
#include "tensor/float16.h"
#include "tensor/quant/code_tables.h"

namespace shoal::tensor {
namespace {

const uint8_t* as_u8(const std::byte* bytes) { return reinterpret_cast<const uint8_t*>(bytes); }

// Byte i holds elements i (low) and i + 16 (high).
void load_split_nibbles(const uint8_t* bytes, Codes& codes) {
  for (size_t i = 0; i < 16; ++i) {
    codes[i] = bytes[i] & 15U;
    codes[i + 16] = bytes[i] >> 4;
  }
}

// Byte i of 32 holds element i in its low or high nibble.
void load_one_nibble(const uint8_t* bytes, bool high, Codes& codes) {
  const int shift = high ? 4 : 0;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>((bytes[i] >> shift) & 15);
  }
}

void add_high_bits(const uint8_t* bits, Codes& codes) {
  uint32_t word = 0;
  std::memcpy(&word, bits, sizeof(word));
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(codes[i] | (((word >> i) & 1U) << 4));
  }
}

// Q2_K and Q3_K: byte i of 32 has two bits of four 32-blocks.
void load_bit_pairs(const uint8_t* bytes, int64_t sub, Codes& codes) {
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(
        (bytes[sub / 4 * 32 + static_cast<int64_t>(i)] >> (2 * (sub % 4))) & 3);
  }
}

// The code's next bit is bit `sub` of byte i.
void add_bit_of_byte(const uint8_t* bits, int64_t sub, int shift, Codes& codes) {
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(codes[i] | (((bits[i] >> sub) & 1) << shift));
  }
}

void load_q6_k(const uint8_t* block, int64_t sub, Codes& codes) {
  const int64_t half = sub / 4;
  const int64_t quarter = sub % 4;
  load_one_nibble(block + q6_k::kCodes + half * 64 + (quarter & 1) * 32, quarter >= 2, codes);
  const uint8_t* high = block + q6_k::kHighBits + half * 32;
  for (size_t i = 0; i < codes.size(); ++i) {
    codes[i] = static_cast<uint8_t>(codes[i] | (((high[i] >> (2 * quarter)) & 3) << 4));
  }
}

}  // namespace

void load_codes(DType type, const std::byte* block, int64_t sub, Codes& codes) {
  const uint8_t* bytes = as_u8(block);
  switch (type) {
    case DType::kQ4_0:
      return load_split_nibbles(bytes + 2, codes);
    case DType::kQ4_1:
      return load_split_nibbles(bytes + 4, codes);
    case DType::kQ5_0:
      load_split_nibbles(bytes + 6, codes);
      return add_high_bits(bytes + 2, codes);
    case DType::kQ5_1:
      load_split_nibbles(bytes + 8, codes);
      return add_high_bits(bytes + 4, codes);
    case DType::kQ8_0:
      for (size_t i = 0; i < codes.size(); ++i) codes[i] = bytes[2 + i] ^ 0x80U;
      return;
    case DType::kQ4_K:
      return load_one_nibble(bytes + q4_k::kCodes + sub / 2 * 32, sub % 2 == 1, codes);
    case DType::kQ5_K:
      load_one_nibble(bytes + q5_k::kCodes + sub / 2 * 32, sub % 2 == 1, codes);
      return add_bit_of_byte(bytes + q5_k::kHighBits, sub, 4, codes);
    case DType::kQ6_K:
      return load_q6_k(bytes, sub, codes);
    case DType::kQ2_K:
      return load_bit_pairs(bytes + q2_k::kCodes, sub, codes);
    case DType::kQ3_K:
      load_bit_pairs(bytes + q3_k::kCodes, sub, codes);
      return add_bit_of_byte(bytes + q3_k::kHighBits, sub, 2, codes);
    case DType::kIQ4_NL:
      return load_split_nibbles(bytes + 2, codes);
    case DType::kIQ4_XS:
      return load_split_nibbles(bytes + iq4_xs::kCodes + 16 * sub, codes);
    case DType::kMXFP4:
      return load_split_nibbles(bytes + 1, codes);
    default:
      CHECK_MSG(false, "a type without quantized blocks");
  }
}

int code_value(DType type, uint8_t code) {
  const PackedFormat format = packed_format(type);
  if (format.codes == CodeLayout::kTable) return code_table(type)[code];
  return code - format.zero_code;
}

ScaleMin load_scale_min(const std::byte* packed_scales, int64_t sub) {
  const uint8_t* s = as_u8(packed_scales);
  if (sub < 4) {
    return {static_cast<uint8_t>(s[sub] & 63), static_cast<uint8_t>(s[sub + 4] & 63)};
  }
  return {static_cast<uint8_t>((s[sub + 4] & 15) | ((s[sub - 4] >> 6) << 4)),
          static_cast<uint8_t>((s[sub + 4] >> 4) | ((s[sub] >> 6) << 4))};
}

int8_t load_q3_k_scale(const std::byte* packed_scales, int64_t part) {
  const uint8_t* s = as_u8(packed_scales);
  const int low = part < 8 ? s[part] & 15 : s[part - 8] >> 4;
  const int high = (s[8 + part % 4] >> (2 * (part / 4))) & 3;
  return static_cast<int8_t>((low | (high << 4)) - 32);
}

int8_t load_iq4_xs_scale(const std::byte* block, int64_t sub) {
  const int low = (as_u8(block)[iq4_xs::kLowScales + sub / 2] >> (4 * (sub % 2))) & 15;
  const int high = (load_u16(block + iq4_xs::kHighScales) >> (2 * sub)) & 3;
  return static_cast<int8_t>((low | (high << 4)) - 32);
}

namespace {

// 2^(e - 128), the scale of codes in halves; 255 is not a number.
float power_scale(std::byte exponent) {
  const auto e = static_cast<uint32_t>(exponent);
  if (e == 255) return std::numeric_limits<float>::quiet_NaN();
  return std::bit_cast<float>(e < 2 ? uint32_t{0x200000} << e : (e - 1) << 23);
}

BlockScales symmetric(float scale) { return {{scale, scale}, {}}; }

}  // namespace

BlockScales load_scales(DType type, const std::byte* block, int64_t sub) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kIQ4_NL:
      return symmetric(f16_to_float(load_u16(block)));
    case DType::kQ4_1:
    case DType::kQ5_1: {
      const float scale = f16_to_float(load_u16(block));
      const float min = f16_to_float(load_u16(block + 2));
      return {{scale, scale}, {min, min}};
    }
    case DType::kQ4_K:
    case DType::kQ5_K: {
      const ScaleMin codes = load_scale_min(block + q4_k::kScales, sub);
      const float scale = f16_to_float(load_u16(block + q4_k::kScale)) * codes.scale;
      const float min = f16_to_float(load_u16(block + q4_k::kMin)) * codes.min;
      return {{scale, scale}, {-min, -min}};
    }
    case DType::kQ6_K: {
      const auto* codes = reinterpret_cast<const int8_t*>(block + q6_k::kScales) + 2 * sub;
      const float scale = f16_to_float(load_u16(block + q6_k::kScale));
      return {{scale * codes[0], scale * codes[1]}, {}};
    }
    case DType::kQ2_K: {
      const uint8_t* codes = as_u8(block) + q2_k::kScales + 2 * sub;
      const float scale = f16_to_float(load_u16(block + q2_k::kScale));
      const float min = f16_to_float(load_u16(block + q2_k::kMin));
      return {
          {scale * static_cast<float>(codes[0] & 15), scale * static_cast<float>(codes[1] & 15)},
          {-min * static_cast<float>(codes[0] >> 4), -min * static_cast<float>(codes[1] >> 4)}};
    }
    case DType::kQ3_K: {
      const float scale = f16_to_float(load_u16(block + q3_k::kScale));
      return {{scale * load_q3_k_scale(block + q3_k::kScales, 2 * sub),
               scale * load_q3_k_scale(block + q3_k::kScales, 2 * sub + 1)},
              {}};
    }
    case DType::kIQ4_XS:
      return symmetric(f16_to_float(load_u16(block + iq4_xs::kScale)) *
                       load_iq4_xs_scale(block, sub));
    case DType::kMXFP4:
      return symmetric(power_scale(block[0]));
    default:
      CHECK_MSG(false, "a type without quantized blocks");
      return {};
  }
}

}  // namespace shoal::tensor

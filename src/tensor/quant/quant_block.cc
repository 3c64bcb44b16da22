#include "tensor/quant/quant_block.h"

#include "base/check.h"
#include "tensor/float16.h"

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
      for (size_t i = 0; i < codes.size(); ++i) {
        const int bit = (bytes[q5_k::kHighBits + i] >> sub) & 1;
        codes[i] = static_cast<uint8_t>(codes[i] | (bit << 4));
      }
      return;
    case DType::kQ6_K:
      return load_q6_k(bytes, sub, codes);
    default:
      CHECK_MSG(false, "a type without quantized blocks");
  }
}

int code_center(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return 8;
    case DType::kQ5_0:
      return 16;
    case DType::kQ6_K:
      return 32;
    case DType::kQ8_0:
      return 128;
    default:
      return 0;
  }
}

ScaleMin load_scale_min(const std::byte* packed_scales, int64_t sub) {
  const uint8_t* s = as_u8(packed_scales);
  if (sub < 4) {
    return {static_cast<uint8_t>(s[sub] & 63), static_cast<uint8_t>(s[sub + 4] & 63)};
  }
  return {static_cast<uint8_t>((s[sub + 4] & 15) | ((s[sub - 4] >> 6) << 4)),
          static_cast<uint8_t>((s[sub + 4] >> 4) | ((s[sub] >> 6) << 4))};
}

BlockScales load_scales(DType type, const std::byte* block, int64_t sub) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0: {
      const float scale = f16_to_float(load_u16(block));
      return {{scale, scale}, 0.0F};
    }
    case DType::kQ4_1:
    case DType::kQ5_1: {
      const float scale = f16_to_float(load_u16(block));
      return {{scale, scale}, f16_to_float(load_u16(block + 2))};
    }
    case DType::kQ4_K:
    case DType::kQ5_K: {
      const ScaleMin codes = load_scale_min(block + q4_k::kScales, sub);
      const float scale = f16_to_float(load_u16(block + q4_k::kScale)) * codes.scale;
      const float min = f16_to_float(load_u16(block + q4_k::kMin)) * codes.min;
      return {{scale, scale}, -min};
    }
    case DType::kQ6_K: {
      const auto* codes = reinterpret_cast<const int8_t*>(block + q6_k::kScales) + 2 * sub;
      const float scale = f16_to_float(load_u16(block + q6_k::kScale));
      return {{scale * codes[0], scale * codes[1]}, 0.0F};
    }
    default:
      CHECK_MSG(false, "a type without quantized blocks");
      return {};
  }
}

}  // namespace shoal::tensor

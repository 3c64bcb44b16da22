// The packed layouts: how weights and activations lie in memory for the packed kernels.
//
// Weights: rows in groups of 16, one group after another; lane r of a vector is row r of the group.
// Missing rows of the last group are zeros.
//   quantized types: blocks of 32 columns. Codes are unsigned bytes w; vector j (0 to 7) of a block
//   has, for lane r, the codes of columns 4j to 4j+3. packed_format says what a type has of these:
//     nibbles  [4][16][4]: byte (k, r, i) = low 4 bits of column 4k+i, high nibble column 16+4k+i
//     one bit  [8] u64:    bit 4r+i of word j = the code's highest bit of column 4j+i
//     pairs    [2][16][4]: byte (h, r, i), bits 2q..2q+1 = two bits of column 4(4h+q)+i
//     bytes    [8][16][4]: byte (j, r, i) = column 4j+i
//   then, per lane, the block's scales; and before the first block of each super-block that the
//   shard touches a header of one or two f16 scales per lane (K types and IQ4_XS).
//   float types: [cols][16] elements of the type.
// Activations: tokens in tiles of 8, then 4, 2, 1 as needed (next_tile_tokens).
//   kInt16Blocks: per tile [blocks][tokens][64 bytes], 32 integers of 16 bits in the order that the
//     kernel path reads (its V::store_inputs); after all tiles, per tile [blocks][tokens]
//     BlockMeta.
//   kFloatTiles: per tile [cols][tokens] float32.   kFloat: [tokens][cols] float32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace shoal::tensor {

inline constexpr int64_t kGroupRows = 16;
inline constexpr int64_t kTileTokens = 8;
inline constexpr int64_t kInputBytes = 64;  // of one token's block: 32 integers of 16 bits

// Of one token's block of 32 inputs: x is close to scale * a.
struct BlockMeta {
  float scale = 0;
  float sum = 0;               // scale * sum of a: what a weight's offset multiplies
  float half_sum[2] = {0, 0};  // the same of columns 0-15 and 16-31
};

// Tokens of the tile that starts when `left` tokens are left: 8, 4, 2 or 1.
constexpr int64_t next_tile_tokens(int64_t left) {
  if (left >= 8) return 8;
  if (left >= 4) return 4;
  return left >= 2 ? 2 : 1;
}

constexpr int64_t tile_index(int64_t tile_tokens) {  // 1, 2, 4, 8 -> 0, 1, 2, 3
  return tile_tokens >= 8 ? 3 : tile_tokens / 2;
}

enum class CodeLayout : uint8_t {
  kNone,          // a float type
  kNibbles,       // 4-bit codes
  kNibblesBit,    // 5-bit: nibbles, bit 4
  kNibblesPairs,  // 6-bit: nibbles, pairs of bits 4 and 5
  kBytes,         // 8-bit
  kPairs,         // 2-bit: pairs
  kPairsBit,      // 3-bit: pairs, bit 2
  kTable,         // 4-bit numbers of a table's entries (quant/code_tables.h)
};

// Per lane. "Signed" is i8 times the header's first half; where there is no minimum, the offset is
// -zero_code times the scale.
enum class ScaleLayout : uint8_t {
  kNone,
  kHalf,        // f16 scale
  kHalfAndMin,  // f16 scale, f16 offset
  kCodes,       // u8 times the header's scale, u8 times the header's minimum
  kTwoCodes,    // per 16 columns a byte: low nibble scale, high nibble minimum
  kSigned,      // one signed scale
  kTwoSigned,   // per 16 columns a signed scale
  kPowerOfTwo,  // u8 e: scale 2^(e - 128), 255 is not a number
};

struct PackedFormat {
  CodeLayout codes = CodeLayout::kNone;
  ScaleLayout scales = ScaleLayout::kNone;
  int header_halves = 0;  // f16 values per lane before each super-block's first block
  int zero_code = 0;      // the code that stands for zero, of types without a minimum
};

constexpr PackedFormat packed_format(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return {CodeLayout::kNibbles, ScaleLayout::kHalf, 0, 8};
    case DType::kQ4_1:
      return {CodeLayout::kNibbles, ScaleLayout::kHalfAndMin, 0, 0};
    case DType::kQ5_0:
      return {CodeLayout::kNibblesBit, ScaleLayout::kHalf, 0, 16};
    case DType::kQ5_1:
      return {CodeLayout::kNibblesBit, ScaleLayout::kHalfAndMin, 0, 0};
    case DType::kQ8_0:
      return {CodeLayout::kBytes, ScaleLayout::kHalf, 0, 128};
    case DType::kQ4_K:
      return {CodeLayout::kNibbles, ScaleLayout::kCodes, 2, 0};
    case DType::kQ5_K:
      return {CodeLayout::kNibblesBit, ScaleLayout::kCodes, 2, 0};
    case DType::kQ6_K:
      return {CodeLayout::kNibblesPairs, ScaleLayout::kTwoSigned, 1, 32};
    case DType::kQ2_K:
      return {CodeLayout::kPairs, ScaleLayout::kTwoCodes, 2, 0};
    case DType::kQ3_K:
      return {CodeLayout::kPairsBit, ScaleLayout::kTwoSigned, 1, 4};
    case DType::kIQ4_NL:
      return {CodeLayout::kTable, ScaleLayout::kHalf, 0, 127};
    case DType::kIQ4_XS:
      return {CodeLayout::kTable, ScaleLayout::kSigned, 1, 127};
    case DType::kMXFP4:
      return {CodeLayout::kTable, ScaleLayout::kPowerOfTwo, 0, 12};
    default:
      return {};
  }
}

constexpr int64_t codes_bytes(CodeLayout codes) {
  switch (codes) {
    case CodeLayout::kNone:
      return 0;
    case CodeLayout::kNibbles:
    case CodeLayout::kTable:
      return 256;
    case CodeLayout::kNibblesBit:
      return 256 + 64;
    case CodeLayout::kNibblesPairs:
      return 256 + 128;
    case CodeLayout::kBytes:
      return 512;
    case CodeLayout::kPairs:
      return 128;
    case CodeLayout::kPairsBit:
      return 128 + 64;
  }
  return 0;
}

constexpr int64_t scales_bytes(ScaleLayout scales) {
  switch (scales) {
    case ScaleLayout::kNone:
      return 0;
    case ScaleLayout::kHalfAndMin:
      return 64;
    case ScaleLayout::kHalf:
    case ScaleLayout::kCodes:
    case ScaleLayout::kTwoCodes:
    case ScaleLayout::kTwoSigned:
      return 32;
    case ScaleLayout::kSigned:
    case ScaleLayout::kPowerOfTwo:
      return 16;
  }
  return 0;
}

struct PackedShape {
  int64_t header_bytes = 0;  // before each super-block's first block
  int64_t block_bytes = 0;   // of 16 rows and 32 columns (quantized) or one column (float)
};

constexpr PackedShape packed_shape(DType type) {
  if (type == DType::kF32) return {0, 64};
  if (is_float_type(type)) return {0, 32};
  const PackedFormat format = packed_format(type);
  return {32 * format.header_halves, codes_bytes(format.codes) + scales_bytes(format.scales)};
}

}  // namespace shoal::tensor

// The packed layouts: how weights and activations lie in memory for the packed kernels.
//
// Weights: rows in groups of 16, one group after another; lane r of a vector is row r of the group.
// Missing rows of the last group are zeros.
//   quantized types: blocks of 32 columns. Codes are unsigned bytes w (zero point: code_center).
//     vector j (0 to 7) of a block has, for lane r, the codes of columns 4j to 4j+3.
//     nibbles  [4][16][4]: byte (k, r, i) = low 4 bits of column 4k+i, high nibble column 16+4k+i
//     high bit [8] u64:    bit 4r+i of word j = bit 4 of column 4j+i            (Q5 types)
//     high two [2][16][4]: byte (h, r, i), bits 2q..2q+1 = bits 4-5 of column 4(4h+q)+i   (Q6_K)
//     bytes    [8][16][4]: byte (j, r, i) = column 4j+i                                  (Q8_0)
//     then per lane: f16 scale, f16 offset (types of 32); u8 scale, u8 min (Q4_K, Q5_K); two i8
//     scales (Q6_K). The K types have a header of f16 scales (and minimums) before the first block
//     of each super-block that the shard touches.
//   float types: [cols][16] elements of the type.
// Activations: tokens in tiles of 8, then 4, 2, 1 as needed (next_tile_tokens).
//   kInt16Blocks: per tile [blocks][tokens][64] int8: 32 high halves, 32 low halves of
//     a = 256 * high + low; after all tiles, per tile [blocks][tokens] BlockMeta.
//   kFloatTiles: per tile [cols][tokens] float32.   kFloat: [tokens][cols] float32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace shoal::tensor {

inline constexpr int64_t kGroupRows = 16;
inline constexpr int64_t kTileTokens = 8;
inline constexpr int64_t kLimbBytes = 64;  // of one token's block: 32 high and 32 low halves

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

struct PackedShape {
  int64_t header_bytes = 0;  // before each super-block's first block
  int64_t block_bytes = 0;   // of 16 rows and 32 columns (quantized) or one column (float)
};

constexpr PackedShape packed_shape(DType type) {
  switch (type) {
    case DType::kF32:
      return {0, 64};
    case DType::kF16:
    case DType::kBF16:
      return {0, 32};
    case DType::kQ4_0:
      return {0, 256 + 32};
    case DType::kQ4_1:
      return {0, 256 + 64};
    case DType::kQ5_0:
      return {0, 256 + 64 + 32};
    case DType::kQ5_1:
      return {0, 256 + 64 + 64};
    case DType::kQ8_0:
      return {0, 512 + 32};
    case DType::kQ4_K:
      return {64, 256 + 32};
    case DType::kQ5_K:
      return {64, 256 + 64 + 32};
    case DType::kQ6_K:
      return {32, 256 + 128 + 32};
    default:
      return {};
  }
}

}  // namespace shoal::tensor

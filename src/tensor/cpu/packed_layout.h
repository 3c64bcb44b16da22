// The packed layouts: how weights and activations lie in memory for the packed kernels.
//
// Weights: rows in groups of 16, one group after another; lane r of a vector is row r of the group.
// Missing rows of the last group are zeros.
//   quantized types: blocks of 32 columns. Kernels see codes as bytes; vector j (0 to 7) of a block
//   has, for lane r, the codes of columns 4j to 4j+3. packed_format says what a type has of these:
//     nibbles  [4][16][4]: byte (k, r, i) = 4 bits of column 4k+i, high nibble column 16+4k+i
//     one bit  [8] u64:    bit 4r+i of word j = one bit of column 4j+i
//     pairs    [2][16][4]: byte (h, r, i), bits 2q..2q+1 = two bits of column 4(4h+q)+i
//     bytes    [8][16][4]: byte (j, r, i) = column 4j+i
//   A type with a minimum has plain codes, from 0 up. One without has biased codes: the value,
//   moved up until its code fills the byte, plus 128, so that 128 always stands for zero; what it
//   was moved up is taken off the finished sums (output_factor). then, per lane, the block's
//   scales; and before the first block of each super-block that the shard touches a header of one
//   or two f16 scales per lane (K types and IQ4_XS). float types: [cols][16] elements of the type.
// Activations: tokens in tiles of 8, then 4, 2, 1 as needed (next_tile_tokens).
//   kByteBlocks: per tile [blocks][tokens][32 bytes]; after all tiles, per tile [blocks][tokens]
//     BlockMeta; then, in the same order, SecondBytes.
//   kFloatTiles: per tile [cols][tokens] float32.   kFloat: [tokens][cols] float32.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace shoal::tensor {

inline constexpr int64_t kGroupRows = 16;
inline constexpr int64_t kTileTokens = 8;
inline constexpr int64_t kInputBytes = 32;  // of one token's block

// Columns of a block: all 32, 0 to 15, or 16 to 31.
enum class Part : uint8_t { kWhole, kFirstHalf, kSecondHalf };
constexpr int first_vector(Part part) { return part == Part::kSecondHalf ? 4 : 0; }
constexpr int end_vector(Part part) { return part == Part::kFirstHalf ? 4 : 8; }

// -128 times the sum of a part's integers, by Part: what makes sums over biased codes those over
// values.
struct BiasSums {
  int32_t by_part[3] = {0, 0, 0};
};

// One token's block of 32 inputs: x is close to scale * a, of its bytes a, plus scale /
// kSecondSteps times its second bytes where it has them.
struct alignas(32) BlockMeta {
  float scale = 0;
  int32_t has_second = 0;
  float sum = 0;               // of the x that a stands for: what a minimum multiplies
  float half_sum[2] = {0, 0};  // the same of columns 0-15 and 16-31
  BiasSums bias;
};
static_assert(sizeof(BlockMeta) == 32);

// What is left of a block's inputs after their bytes, in kSecondSteps of a byte's step. Only blocks
// that one value dominates have it: there bytes alone would leave little of the other 31.
inline constexpr float kSecondSteps = 254.0F;
struct SecondBytes {
  int8_t inputs[kInputBytes];
  BiasSums bias;
  int32_t unused = 0;
};
static_assert(sizeof(SecondBytes) == 48);

// Blocks of kByteBlocks from one on.
struct BlockInputs {
  const int8_t* bytes = nullptr;
  const BlockMeta* meta = nullptr;
  const SecondBytes* second = nullptr;

  BlockInputs at(int64_t block) const {
    return {bytes + block * kInputBytes, meta + block, second + block};
  }
};
struct BlockOutputs {
  int8_t* bytes = nullptr;
  BlockMeta* meta = nullptr;
  SecondBytes* second = nullptr;

  BlockOutputs at(int64_t block) const {
    return {bytes + block * kInputBytes, meta + block, second + block};
  }
  BlockInputs inputs() const { return {bytes, meta, second}; }
};
inline constexpr int64_t kBlockInputBytes =
    kInputBytes + static_cast<int64_t>(sizeof(BlockMeta) + sizeof(SecondBytes));

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
  kNibblesBit,    // 5-bit: nibbles and one bit
  kNibblesPairs,  // 6-bit: nibbles and pairs
  kBytes,         // 8-bit
  kPairs,         // 2-bit: pairs
  kPairsBit,      // 3-bit: pairs and one bit
  kTable,         // 4-bit numbers of a table's entries (quant/code_tables.h)
};

// Per lane. "Signed" is i8 times the header's first half.
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
  int zero_code = 0;      // of a file's codes the one that stands for zero, where there is one
};

constexpr bool has_minimum(ScaleLayout scales) {
  return scales == ScaleLayout::kHalfAndMin || scales == ScaleLayout::kCodes ||
         scales == ScaleLayout::kTwoCodes;
}

// How a code is cut: `main_bits` in nibbles or pairs, `rest_bits` beside them. Plain codes have the
// low bits in the main part, biased ones the high bits.
struct CodeBits {
  int main_bits;
  int rest_bits;
};
constexpr CodeBits code_bits(CodeLayout codes) {
  switch (codes) {
    case CodeLayout::kNibbles:
      return {4, 0};
    case CodeLayout::kNibblesBit:
      return {4, 1};
    case CodeLayout::kNibblesPairs:
      return {4, 2};
    case CodeLayout::kPairs:
      return {2, 0};
    case CodeLayout::kPairsBit:
      return {2, 1};
    default:
      return {8, 0};  // whole bytes, also of a table
  }
}

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
      return {CodeLayout::kTable, ScaleLayout::kHalf, 0, 0};
    case DType::kIQ4_XS:
      return {CodeLayout::kTable, ScaleLayout::kSigned, 1, 0};
    case DType::kMXFP4:
      return {CodeLayout::kTable, ScaleLayout::kPowerOfTwo, 0, 0};
    default:
      return {};
  }
}

constexpr bool is_biased(DType type) { return !has_minimum(packed_format(type).scales); }

// Where the two parts of a code lie in the byte that kernels see.
struct CodePlaces {
  int main_shift;
  int rest_shift;
};
constexpr CodePlaces code_places(DType type) {
  const CodeBits bits = code_bits(packed_format(type).codes);
  if (!is_biased(type)) return {0, bits.main_bits};
  return {8 - bits.main_bits, 8 - bits.main_bits - bits.rest_bits};
}

// What the sums of a type's products are multiplied with at the end.
constexpr float output_factor(DType type) {
  return is_biased(type) ? 1.0F / static_cast<float>(1 << code_places(type).rest_shift) : 1.0F;
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

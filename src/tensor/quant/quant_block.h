// Access to the fields of GGUF's quantized blocks, 32 elements at a time.
//
// Every supported quantized type is seen as blocks of 32 codes: the types with 32 elements have one
// per block, those with super-blocks of 256 eight. docs/quantization.md specifies the bytes.
// Sources need no alignment. Thread rule: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace shoal::tensor {

inline constexpr int64_t kQuantBlock = 32;     // elements handled together
inline constexpr int64_t kSuperBlock = 256;    // elements of a super-block
inline constexpr int64_t kBlocksPerSuper = 8;  // kSuperBlock / kQuantBlock

inline uint16_t load_u16(const std::byte* bytes) {
  uint16_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

inline float load_float(const std::byte* bytes) {
  float value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// The unsigned codes of 32 elements.
using Codes = std::array<uint8_t, kQuantBlock>;

// Codes of 32-block number `sub` (always 0 for types with blocks of 32) of the block at `block`.
// Signed types are shifted to unsigned, table types give the entry's number.
void load_codes(DType type, const std::byte* block, int64_t sub, Codes& codes);

// What a code stands for in units of its scale: the code less the type's zero code, or its entry.
int code_value(DType type, uint8_t code);

// The 6-bit scale and minimum of one 32-block of a Q4_K or Q5_K super-block.
struct ScaleMin {
  uint8_t scale = 0;
  uint8_t min = 0;
};
ScaleMin load_scale_min(const std::byte* packed_scales, int64_t sub);

// The 6-bit scale code of elements 16 part to 16 part + 15 of a Q3_K super-block, less 32.
int8_t load_q3_k_scale(const std::byte* packed_scales, int64_t part);
// The 6-bit scale code of 32-block `sub` of an IQ4_XS super-block, less 32.
int8_t load_iq4_xs_scale(const std::byte* block, int64_t sub);

// value = scale[half] * code_value + offset[half], where half 0 is elements 0 to 15.
struct BlockScales {
  std::array<float, 2> scale{};
  std::array<float, 2> offset{};
};
BlockScales load_scales(DType type, const std::byte* block, int64_t sub);

// Byte positions inside super-blocks.
namespace q4_k {
inline constexpr int kScale = 0, kMin = 2, kScales = 4, kCodes = 16;
}
namespace q5_k {
inline constexpr int kScale = 0, kMin = 2, kScales = 4, kHighBits = 16, kCodes = 48;
}
namespace q2_k {
inline constexpr int kScales = 0, kCodes = 16, kScale = 80, kMin = 82;
}
namespace q3_k {
inline constexpr int kHighBits = 0, kCodes = 32, kScales = 96, kScale = 108;
}
namespace iq4_xs {
inline constexpr int kScale = 0, kHighScales = 2, kLowScales = 4, kCodes = 8;
}
namespace q6_k {
inline constexpr int kCodes = 0, kHighBits = 128, kScales = 192, kScale = 208;
}

}  // namespace shoal::tensor

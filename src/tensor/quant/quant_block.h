// Access to the fields of GGUF's quantized blocks, 32 elements at a time.
//
// Every supported quantized type is seen as blocks of 32 codes: the types with 32 elements have one
// per block, the K types eight per super-block. docs/quantization.md specifies the bytes. Sources
// need no alignment. Thread rule: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace shoal::tensor {

inline constexpr int64_t kQuantBlock = 32;     // elements handled together
inline constexpr int64_t kSuperBlock = 256;    // elements of a K type's block
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

inline bool is_k_type(DType type) {
  return type == DType::kQ4_K || type == DType::kQ5_K || type == DType::kQ6_K;
}

// The unsigned codes of 32 elements.
using Codes = std::array<uint8_t, kQuantBlock>;

// Codes of 32-block number `sub` (always 0 for types with blocks of 32) of the block at `block`.
// Signed types are shifted to unsigned: subtract code_center.
void load_codes(DType type, const std::byte* block, int64_t sub, Codes& codes);

// The code that stands for zero: 8, 16, 32, 128, or 0 for types with a minimum.
int code_center(DType type);

// The 6-bit scale and minimum of one 32-block of a Q4_K or Q5_K super-block.
struct ScaleMin {
  uint8_t scale = 0;
  uint8_t min = 0;
};
ScaleMin load_scale_min(const std::byte* packed_scales, int64_t sub);

// value = scale[half] * (code - center) + offset, where half 0 is elements 0 to 15.
struct BlockScales {
  std::array<float, 2> scale{};
  float offset = 0;
};
BlockScales load_scales(DType type, const std::byte* block, int64_t sub);

// Byte positions inside the K types' super-blocks.
namespace q4_k {
inline constexpr int kScale = 0, kMin = 2, kScales = 4, kCodes = 16;
}
namespace q5_k {
inline constexpr int kScale = 0, kMin = 2, kScales = 4, kHighBits = 16, kCodes = 48;
}
namespace q6_k {
inline constexpr int kCodes = 0, kHighBits = 128, kScales = 192, kScale = 208;
}

}  // namespace shoal::tensor

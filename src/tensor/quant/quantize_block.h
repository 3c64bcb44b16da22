// What the quantizers of single blocks share; used by quantize.cc and quantize_super.cc only.
//
// Thread rule: pure functions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "tensor/quant/code_tables.h"
#include "tensor/quant/quant_block.h"

namespace shoal::tensor {

using Values = std::span<const float>;

inline void store_f16(std::byte* out, uint16_t value) { std::memcpy(out, &value, sizeof(value)); }

// The code of a value: value / scale + zero_code, rounded, within [0, code_max].
inline uint8_t code_of(float value, float scale, float zero_code, int code_max) {
  if (scale == 0.0F || !std::isfinite(scale)) return static_cast<uint8_t>(zero_code);
  const float code = std::nearbyint(value / scale + zero_code);
  if (!(code > 0.0F)) return 0;
  return static_cast<uint8_t>(std::min(code, static_cast<float>(code_max)));
}

// The number of the entry nearest to value / scale.
inline uint8_t nearest_in_table(const CodeTable& table, float value, float scale) {
  if (scale == 0.0F || !std::isfinite(scale)) return 0;
  const float target = value / scale;
  size_t best = 0;
  for (size_t i = 1; i < table.size(); ++i) {
    if (std::fabs(target - table[i]) < std::fabs(target - table[best])) best = i;
  }
  return static_cast<uint8_t>(best);
}

// The value of largest magnitude, with its sign. The magnitude is kept beside it: clang 19 makes
// wrong code of `fabs(value) > fabs(extreme)` when it unrolls the loop (it drops the second fabs).
inline float extreme_of(Values values) {
  float extreme = 0;
  float magnitude = 0;
  for (const float value : values) {
    if (!(std::fabs(value) > magnitude)) continue;
    magnitude = std::fabs(value);
    extreme = value;
  }
  return extreme;
}

inline void store_split_nibbles(const Codes& codes, std::byte* out) {
  for (size_t i = 0; i < 16; ++i) {
    out[i] = static_cast<std::byte>((codes[i] & 15) | ((codes[i + 16] & 15) << 4));
  }
}

// 256 values into one super-block of zeros.
void quantize_super_block(DType type, Values values, std::byte* out);

}  // namespace shoal::tensor

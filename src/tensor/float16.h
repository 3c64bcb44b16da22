// Conversions between float32 and the two 16-bit float formats (IEEE half and bfloat16).
//
// Rounding is to the nearest, ties to even; NaN stays NaN. Thread rule: pure functions.
#pragma once

#include <bit>
#include <cstdint>

namespace shoal::tensor {

inline float bf16_to_float(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

inline uint16_t float_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

inline float f16_to_float(uint16_t value) {
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000U) << 16;
  const uint32_t magnitude = value & 0x7fffU;
  if (magnitude >= 0x7c00U) {  // infinity, NaN
    return std::bit_cast<float>(sign | 0x7f800000U | ((magnitude & 0x3ffU) << 13));
  }
  // Scaling by 2^112 moves the exponent from bias 15 to bias 127, subnormals included.
  const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | sign);
}

// Values beyond 65504 become infinity.
inline uint16_t float_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  const uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) {
    return static_cast<uint16_t>(sign | 0x7e00U | ((magnitude >> 13) & 0x3ffU));
  }
  if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);  // 65520 and above
  if (magnitude < 0x38800000U) {  // below 2^-14: a subnormal half is a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;  // 0.5 has an ulp of 2^-24
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000U));
  }
  const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
}

// As float_to_f16, but finite values beyond its range become the largest finite half.
inline uint16_t float_to_f16_saturated(float value) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(value) & 0x7fffffffU;
  if (magnitude >= 0x477ff000U && magnitude < 0x7f800000U) {
    return static_cast<uint16_t>(((std::bit_cast<uint32_t>(value) >> 16) & 0x8000U) | 0x7bffU);
  }
  return float_to_f16(value);
}

}  // namespace shoal::tensor

// The values of the four-bit codes that are no straight line: IQ4_NL, IQ4_XS and MXFP4.
//
// docs/quantization.md has their source. Thread rule: constant data.
#pragma once

#include <array>
#include <cstdint>

#include "tensor/dtype.h"

namespace shoal::tensor {

using CodeTable = std::array<int8_t, 16>;

// IQ4_NL and IQ4_XS: levels for a bell-shaped distribution, in units of the block's scale.
inline constexpr CodeTable kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                         1,    13,   25,  38,  53,  69,  89,  113};
// MXFP4: sign, two bits of exponent, one of mantissa, in units of half the block's scale.
inline constexpr CodeTable kMxfp4Values = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

constexpr const CodeTable& code_table(DType type) {
  return type == DType::kMXFP4 ? kMxfp4Values : kIq4Values;
}

}  // namespace shoal::tensor

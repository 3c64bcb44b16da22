// Rows of weights between float32 and every supported type.
//
// Dequantizing is exact: value = the block's formula in float32 (docs/quantization.md).
// Quantizing is the plain reference: scales from the block's extremes, round to the nearest; for
// tests and synthetic models. Sources and targets need no alignment. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tensor/dtype.h"

namespace shoal::tensor {

// Elements [begin, end) of one row into `out` (end - begin floats). `row` holds the whole row and
// need not be cut at block borders. CHECKs that the type is supported and the range lies in the
// row.
void dequantize_row(DType type, std::span<const std::byte> row, int64_t begin, int64_t end,
                    float* out);

// values.size() elements, a whole number of blocks, into row_bytes(type, values.size()) bytes.
void quantize_row(DType type, std::span<const float> values, std::span<std::byte> out);

// A [rows, cols] matrix, row after row.
std::vector<std::byte> quantize_matrix(DType type, std::span<const float> values, int64_t cols);

}  // namespace shoal::tensor

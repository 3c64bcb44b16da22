// FloatRows: a borrowed float32 table with one row per token.
//
// Rows are contiguous, `stride` floats apart (stride >= cols). Thread rule: a plain view.
#pragma once

#include <cstdint>

namespace shoal::tensor {

struct ConstFloatRows {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  const float* row(int64_t index) const { return data + index * stride; }
};

struct FloatRows {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  float* row(int64_t index) const { return data + index * stride; }
  // Columns [begin, begin + count) of every row, such as one projection of a fused buffer.
  FloatRows slice(int64_t begin, int64_t count) const {
    return {data + begin, rows, count, stride};
  }
  operator ConstFloatRows() const {  // NOLINT(google-explicit-constructor): a view of a view
    return {data, rows, cols, stride};
  }
};

}  // namespace shoal::tensor

// pack_group: writes 16 rows of a weight in the packed layout of cpu/packed_layout.h.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/matrix.h"

namespace shoal::tensor {

// The part of a matrix that one group packs.
struct GroupSource {
  DType type = DType::kF32;
  const std::byte* row = nullptr;  // the first row of the group
  int64_t row_bytes = 0;
  int64_t rows = 0;         // 1 to 16; missing rows become zeros
  int64_t first_block = 0;  // first 32-column block, or first column of a float type
  int64_t blocks = 0;
};

// `out` has packed_group_bytes bytes, all zero.
void pack_group(const GroupSource& source, std::byte* out);

// Bytes of one packed group, a multiple of 64.
int64_t packed_group_bytes(DType type, int64_t first_block, int64_t blocks);

}  // namespace shoal::tensor

// The embedding table: token ids to rows of float32.
//
// Thread rule: SPMD, called by every worker of a step; ends without a barrier.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/matrix.h"
#include "tensor/rows.h"
#include "tensor/threads.h"

namespace shoal::tensor {

// out[i, :] = row tokens[i] of the table, dequantized. CHECKs that ids lie in the table: the caller
// has validated them.
void embedding(Worker& me, const MatrixView& table, std::span<const int32_t> tokens, FloatRows out);

}  // namespace shoal::tensor

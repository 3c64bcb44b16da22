#include "tensor/activations.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/cpu/packed_layout.h"
#include "tensor/quant/quant_block.h"

namespace shoal::tensor {

Result<Activations> Activations::allocate(const Limits& limits) {
  CHECK(limits.tokens_max >= 1 && limits.cols_max >= 0);
  Activations activations;
  activations.limits_ = limits;
  // A shard's columns may touch one block more than they fill.
  const int64_t blocks = limits.cols_max / kQuantBlock + 2;
  const int64_t per_token =
      std::max(blocks * kBlockInputBytes, limits.cols_max * static_cast<int64_t>(sizeof(float)));
  ASSIGN_OR_RETURN(activations.buffer_,
                   AlignedBuffer::allocate(static_cast<size_t>(limits.tokens_max * per_token)));
  return activations;
}

}  // namespace shoal::tensor

#include "tensor/activations.h"

#include "base/check.h"
#include "tensor/byte_blocks.h"

namespace shoal::tensor {

Result<Activations> Activations::allocate(const Limits& limits) {
  CHECK(limits.tokens_max >= 1 && limits.cols_max >= 0);
  Activations activations;
  activations.limits_ = limits;
  const int64_t bytes = limits.tokens_max * input_bytes_max(limits.cols_max);
  ASSIGN_OR_RETURN(activations.buffer_, AlignedBuffer::allocate(static_cast<size_t>(bytes)));
  return activations;
}

}  // namespace shoal::tensor

// The packed kernels in AVX-512 with VNNI. This source alone is built with those instruction sets.
#include "tensor/cpu/packed_kernels.h"
#include "tensor/cpu/x86/vec_avx512.h"

namespace shoal::tensor {

constinit const Kernels kAvx512Kernels = packed_kernels<VecAvx512>(KernelPath::kAvx512);

}  // namespace shoal::tensor

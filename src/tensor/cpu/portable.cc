// The packed kernels in plain C++, for any processor.
#include "tensor/cpu/packed_kernels.h"
#include "tensor/cpu/vec_portable.h"

namespace shoal::tensor {

constinit const Kernels kPortableKernels = packed_kernels<VecPortable>(KernelPath::kPortable);

}  // namespace shoal::tensor

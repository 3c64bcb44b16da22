// Stands for avx512.cc on other architectures: an empty table, which kernel_path_runs_here refuses.
#include "tensor/cpu/kernels.h"

namespace shoal::tensor {

constinit const Kernels kAvx512Kernels = {.path = KernelPath::kAvx512};

}  // namespace shoal::tensor

// Stands for neon_dot.cc and neon_i8mm.cc on other architectures: empty tables, which
// kernel_path_runs_here refuses.
#include "tensor/cpu/kernels.h"

namespace shoal::tensor {

constinit const Kernels kNeonDotKernels = {.path = KernelPath::kNeonDot};
constinit const Kernels kNeonI8mmKernels = {.path = KernelPath::kNeonI8mm};

}  // namespace shoal::tensor

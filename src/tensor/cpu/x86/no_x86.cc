// Stands for avx2.cc, avx_vnni.cc, avx512.cc and amx.cc on other architectures: empty tables, which
// kernel_path_runs_here refuses.
#include "tensor/cpu/kernels.h"

namespace shoal::tensor {

constinit const Kernels kAvx2Kernels = {.path = KernelPath::kAvx2};
constinit const Kernels kAvxVnniKernels = {.path = KernelPath::kAvxVnni};
constinit const Kernels kAvx512Kernels = {.path = KernelPath::kAvx512};
constinit const Kernels kAmxKernels = {.path = KernelPath::kAmx};

}  // namespace shoal::tensor

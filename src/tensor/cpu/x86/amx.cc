// The kernels of AVX-512 with VNNI, and prefill on AMX tiles with the same bits. This source is
// built with those instruction sets.
#include "tensor/cpu/packed_kernels.h"
#include "tensor/cpu/panel_kernel.h"
#include "tensor/cpu/x86/tile_amx.h"
#include "tensor/cpu/x86/vec_avx512.h"

namespace shoal::tensor {

constinit const Kernels kAmxKernels = panel_kernels<TileAmx, VecAvx512>(KernelPath::kAmx);

}  // namespace shoal::tensor

// The portable kernels with prefill on stand-ins of tiles: what the AMX path does, for tests.
#include "tensor/cpu/packed_kernels.h"
#include "tensor/cpu/panel_kernel.h"
#include "tensor/cpu/tile_scalar.h"
#include "tensor/cpu/vec_portable.h"

namespace shoal::tensor {

constinit const Kernels kPortableTilesKernels =
    panel_kernels<TileScalar, VecPortable>(KernelPath::kPortableTiles);

}  // namespace shoal::tensor

// The packed kernels in plain C++, for any processor.
#include "tensor/cpu/attention_kernel.h"
#include "tensor/cpu/matmul_kernel.h"
#include "tensor/cpu/vec_portable.h"
#include "tensor/cpu/vector_kernel.h"

namespace shoal::tensor {

constinit const Kernels kPortableKernels = {
    .path = KernelPath::kPortable,
    .quantize_blocks = quantize_blocks_16<VecPortable>,
    .matmul_tile = all_matmul_tiles<VecPortable>(std::make_index_sequence<kSupportedTypes>()),
    .dot = dot_lanes<VecPortable>,
    .scale_by_weight = scale_by_weight_lanes<VecPortable>,
    .swiglu = swiglu_lanes<VecPortable>,
    .attention_tile = attention_tile_lanes<VecPortable>,
    .sum_exp = sum_exp_lanes<VecPortable>,
    .read_all = read_all_lanes<VecPortable>,
    .float_rounds = float_rounds_lanes<VecPortable>,
};

}  // namespace shoal::tensor

// The packed kernels in AVX-512 with VNNI. This source alone is built with those instruction sets.
#include "tensor/cpu/attention_kernel.h"
#include "tensor/cpu/matmul_kernel.h"
#include "tensor/cpu/vec_avx512.h"
#include "tensor/cpu/vector_kernel.h"

namespace shoal::tensor {

constinit const Kernels kAvx512Kernels = {
    .path = KernelPath::kAvx512,
    .quantize_blocks = quantize_blocks_16<VecAvx512>,
    .matmul_tile = all_matmul_tiles<VecAvx512>(std::make_index_sequence<kSupportedTypes>()),
    .dot = dot_lanes<VecAvx512>,
    .scale_by_weight = scale_by_weight_lanes<VecAvx512>,
    .swiglu = swiglu_lanes<VecAvx512>,
    .attention_tile = attention_tile_lanes<VecAvx512>,
    .sum_exp = sum_exp_lanes<VecAvx512>,
    .read_all = read_all_lanes<VecAvx512>,
    .float_rounds = float_rounds_lanes<VecAvx512>,
};

}  // namespace shoal::tensor

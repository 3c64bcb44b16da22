// The packed kernels in AVX2 with AVX-VNNI. This source is built with AVX2, FMA, F16C and AVX-VNNI.
#include "tensor/cpu/packed_kernels.h"
#include "tensor/cpu/x86/vec_avx2.h"

namespace shoal::tensor {
namespace {

struct MultiplyAdd {
  static __m256i add(__m256i sums, __m256i a, __m256i b) {
    return _mm256_dpwssd_avx_epi32(sums, a, b);
  }
};

}  // namespace

constinit const Kernels kAvxVnniKernels =
    packed_kernels<VecAvx2<MultiplyAdd>>(KernelPath::kAvxVnni);

}  // namespace shoal::tensor

// The packed kernels in AVX2. This source is built with AVX2, FMA and F16C.
#include "tensor/cpu/packed_kernels.h"
#include "tensor/cpu/x86/vec_avx2.h"

namespace shoal::tensor {
namespace {

struct MultiplyThenAdd {
  static __m256i add(__m256i sums, __m256i a, __m256i b) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(a, b));
  }
};

}  // namespace

constinit const Kernels kAvx2Kernels = packed_kernels<VecAvx2<MultiplyThenAdd>>(KernelPath::kAvx2);

}  // namespace shoal::tensor

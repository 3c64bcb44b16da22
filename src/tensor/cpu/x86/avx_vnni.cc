// The packed kernels in AVX2 with AVX-VNNI. This source is built with AVX2, FMA, F16C and AVX-VNNI.
#include "tensor/cpu/packed_kernels.h"
#include "tensor/cpu/x86/vec_avx2.h"

namespace shoal::tensor {
namespace {

struct DotProducts {
  template <bool Biased>
  struct Codes {
    Avx2Ints w[8];
  };
  template <bool Biased>
  static Codes<Biased> prepare(const Avx2Ints (&w)[8]) {
    return {{w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]}};
  }
  template <bool Biased>
  static __m256i start(int32_t bias) {
    return _mm256_set1_epi32(Biased ? bias : 0);
  }
  template <bool Biased>
  static void add(Avx2Ints& sums, const Codes<Biased>& codes, int j, __m256i inputs) {
    sums.lo = _mm256_dpbusd_avx_epi32(sums.lo, codes.w[j].lo, inputs);
    sums.hi = _mm256_dpbusd_avx_epi32(sums.hi, codes.w[j].hi, inputs);
  }
  static __m256i add_products(__m256i sums, __m256i pairs, __m256i pair) {
    return _mm256_dpwssd_avx_epi32(sums, pairs, pair);
  }
};

}  // namespace

constinit const Kernels kAvxVnniKernels =
    packed_kernels<VecAvx2<DotProducts>>(KernelPath::kAvxVnni);

}  // namespace shoal::tensor

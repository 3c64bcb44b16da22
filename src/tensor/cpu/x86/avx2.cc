// The packed kernels in AVX2. This source is built with AVX2, FMA and F16C.
#include "tensor/cpu/packed_kernels.h"
#include "tensor/cpu/x86/vec_avx2.h"

namespace shoal::tensor {
namespace {

// AVX2's product of bytes takes unsigned times signed ones and adds pairs in 16 bits, saturating.
// Plain codes are small enough (2 * 31 * 127). A value of biased codes gives its magnitude to the
// unsigned side and its sign to the input: at most 2 * 128 * 127, which still fits.
struct PairProducts {
  template <bool Biased>
  struct Codes {
    Avx2Ints magnitude[8];
    Avx2Ints value[Biased ? 8 : 1];
  };
  template <bool Biased>
  static Codes<Biased> prepare(const Avx2Ints (&w)[8]) {
    Codes<Biased> codes;
    for (int j = 0; j < 8; ++j) {
      codes.magnitude[j] = w[j];
      if constexpr (Biased) {
        const __m256i bias = _mm256_set1_epi8(-128);
        codes.value[j] = {_mm256_xor_si256(w[j].lo, bias), _mm256_xor_si256(w[j].hi, bias)};
        codes.magnitude[j] = {_mm256_abs_epi8(codes.value[j].lo),
                              _mm256_abs_epi8(codes.value[j].hi)};
      }
    }
    return codes;
  }
  template <bool Biased>
  static __m256i start(int32_t /*bias*/) {
    return _mm256_setzero_si256();
  }
  template <bool Biased>
  static void add(Avx2Ints& sums, const Codes<Biased>& codes, int j, __m256i inputs) {
    __m256i lo = inputs;
    __m256i hi = inputs;
    if constexpr (Biased) {
      lo = _mm256_sign_epi8(inputs, codes.value[j].lo);
      hi = _mm256_sign_epi8(inputs, codes.value[j].hi);
    }
    sums.lo = add_pairs(sums.lo, _mm256_maddubs_epi16(codes.magnitude[j].lo, lo));
    sums.hi = add_pairs(sums.hi, _mm256_maddubs_epi16(codes.magnitude[j].hi, hi));
  }
  static __m256i add_products(__m256i sums, __m256i pairs, __m256i pair) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(pairs, pair));
  }

 private:
  static __m256i add_pairs(__m256i sums, __m256i products) {
    return _mm256_add_epi32(sums, _mm256_madd_epi16(products, _mm256_set1_epi16(1)));
  }
};

}  // namespace

constinit const Kernels kAvx2Kernels = packed_kernels<VecAvx2<PairProducts>>(KernelPath::kAvx2);

}  // namespace shoal::tensor

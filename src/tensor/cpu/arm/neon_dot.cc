// The packed kernels in NEON with the dot product instructions. This source is built with those.
#include "tensor/cpu/arm/vec_neon.h"
#include "tensor/cpu/packed_kernels.h"

namespace shoal::tensor {
namespace {

// Four codes of a row times four inputs per lane.
struct FourColumns {
  static constexpr bool kDotsTwoTokens = false;
  struct Codes {
    int8x16_t w[8][4];
  };
  static Codes prepare(const NeonBytes (&w)[8]) {
    Codes codes;
    for (int j = 0; j < 8; ++j) {
      for (int i = 0; i < 4; ++i) codes.w[j][i] = vreinterpretq_s8_u8(w[j].v[i]);
    }
    return codes;
  }
  static int8x16_t four_inputs(const int8_t* p) {
    int32_t word = 0;
    std::memcpy(&word, p, sizeof(word));
    return vreinterpretq_s8_s32(vdupq_n_s32(word));
  }
  template <Part P>
  static NeonInts dot(const Codes& codes, const int8_t* inputs) {
    const int32x4_t zero = vdupq_n_s32(0);
    NeonInts sums{{zero, zero, zero, zero}};
    for (int j = first_vector(P); j < end_vector(P); ++j) {
      const int8x16_t a = four_inputs(inputs + 4 * j);
      for (int i = 0; i < 4; ++i) sums.v[i] = vdotq_s32(sums.v[i], codes.w[j][i], a);
    }
    return sums;
  }
};

}  // namespace

constinit const Kernels kNeonDotKernels =
    packed_kernels<VecNeon<FourColumns>>(KernelPath::kNeonDot);

}  // namespace shoal::tensor

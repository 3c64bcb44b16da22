// The packed kernels in NEON with the dot product instructions. This source is built with those.
#include "tensor/cpu/arm/vec_neon.h"
#include "tensor/cpu/packed_kernels.h"

namespace shoal::tensor {
namespace {

// Four codes of a row times four inputs per lane. Inputs: 32 high halves, then 32 low ones.
struct FourColumns {
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
  template <int Begin, int End>
  static NeonInts dot(const Codes& codes, const int8_t* inputs) {
    const int32x4_t zero = vdupq_n_s32(0);
    NeonInts high{{zero, zero, zero, zero}};
    NeonInts low = high;
    for (int j = Begin; j < End; ++j) {
      const int8x16_t a_high = four_inputs(inputs + 4 * j);
      const int8x16_t a_low = four_inputs(inputs + 32 + 4 * j);
      for (int i = 0; i < 4; ++i) {
        high.v[i] = vdotq_s32(high.v[i], codes.w[j][i], a_high);
        low.v[i] = vdotq_s32(low.v[i], codes.w[j][i], a_low);
      }
    }
    for (int i = 0; i < 4; ++i) low.v[i] = vaddq_s32(vshlq_n_s32(high.v[i], 8), low.v[i]);
    return low;
  }
  // Half 0 is columns 0 to 15.
  static void store_bytes(int8x16_t high, int8x16_t low, int half, int8_t* inputs) {
    vst1q_s8(inputs + 16 * half, high);
    vst1q_s8(inputs + 32 + 16 * half, low);
  }
};

}  // namespace

constinit const Kernels kNeonDotKernels =
    packed_kernels<VecNeon<FourColumns>>(KernelPath::kNeonDot);

}  // namespace shoal::tensor

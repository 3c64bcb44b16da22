// The packed kernels in NEON with the matrix instructions for bytes (I8MM). This source is built
// with those.
#include "tensor/cpu/arm/vec_neon.h"
#include "tensor/cpu/packed_kernels.h"

namespace shoal::tensor {
namespace {

// One instruction multiplies two rows of eight codes with two rows of eight bytes, which are the
// high and the low halves of one token's inputs; so a token's sums are the same in any batch.
// Inputs: per eight columns, eight high halves, then eight low ones.
struct TwoHalves {
  struct Codes {
    int8x16_t rows[4][8];  // [eight columns][two rows of codes]
  };
  static Codes prepare(const NeonBytes (&w)[8]) {
    Codes codes;
    for (int g = 0; g < 4; ++g) {
      for (int i = 0; i < 4; ++i) {
        const int32x4_t first = vreinterpretq_s32_u8(w[2 * g].v[i]);
        const int32x4_t second = vreinterpretq_s32_u8(w[2 * g + 1].v[i]);
        codes.rows[g][2 * i] = vreinterpretq_s8_s32(vzip1q_s32(first, second));
        codes.rows[g][2 * i + 1] = vreinterpretq_s8_s32(vzip2q_s32(first, second));
      }
    }
    return codes;
  }
  template <int Begin, int End>
  static NeonInts dot(const Codes& codes, const int8_t* inputs) {
    int32x4_t sums[8];  // of two rows: high, low, high, low
    for (auto& sum : sums) sum = vdupq_n_s32(0);
    for (int g = Begin / 2; g < End / 2; ++g) {
      const int8x16_t halves = vld1q_s8(inputs + 16 * g);
      for (int i = 0; i < 8; ++i) sums[i] = vmmlaq_s32(sums[i], codes.rows[g][i], halves);
    }
    NeonInts joined;
    for (int i = 0; i < 4; ++i) {
      const int32x4_t high = vuzp1q_s32(sums[2 * i], sums[2 * i + 1]);
      const int32x4_t low = vuzp2q_s32(sums[2 * i], sums[2 * i + 1]);
      joined.v[i] = vaddq_s32(vshlq_n_s32(high, 8), low);
    }
    return joined;
  }
  // Half 0 is columns 0 to 15.
  static void store_bytes(int8x16_t high, int8x16_t low, int half, int8_t* inputs) {
    vst1q_s8(inputs + 32 * half, vcombine_s8(vget_low_s8(high), vget_low_s8(low)));
    vst1q_s8(inputs + 32 * half + 16, vcombine_s8(vget_high_s8(high), vget_high_s8(low)));
  }
};

}  // namespace

constinit const Kernels kNeonI8mmKernels =
    packed_kernels<VecNeon<TwoHalves>>(KernelPath::kNeonI8mm);

}  // namespace shoal::tensor

// The packed kernels in NEON with the matrix instructions for bytes (I8MM). This source is built
// with those.
#include "tensor/cpu/arm/vec_neon.h"
#include "tensor/cpu/packed_kernels.h"

namespace shoal::tensor {
namespace {

// One instruction multiplies two rows of eight codes with eight inputs of each of two tokens. A
// token alone is both of them; its sums are the same integers.
struct TwoTokens {
  static constexpr bool kDotsTwoTokens = true;
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
  template <Part P>
  static NeonInts dot(const Codes& codes, const int8_t* inputs) {
    NeonInts sums[2];
    multiply<P>(codes, inputs, inputs, sums);
    return sums[0];
  }
  template <Part P>
  static void dot_two(const Codes& codes, const int8_t* inputs, NeonInts (&sums)[2]) {
    multiply<P>(codes, inputs, inputs + kInputBytes, sums);
  }

 private:
  template <Part P>
  static void multiply(const Codes& codes, const int8_t* first, const int8_t* second,
                       NeonInts (&sums)[2]) {
    int32x4_t products[8];  // of two rows: first token, second, first, second
    for (auto& product : products) product = vdupq_n_s32(0);
    for (int g = first_vector(P) / 2; g < end_vector(P) / 2; ++g) {
      const int8x16_t inputs = vcombine_s8(vld1_s8(first + 8 * g), vld1_s8(second + 8 * g));
      for (int i = 0; i < 8; ++i) {
        products[i] = vmmlaq_s32(products[i], codes.rows[g][i], inputs);
      }
    }
    for (int i = 0; i < 4; ++i) {
      sums[0].v[i] = vuzp1q_s32(products[2 * i], products[2 * i + 1]);
      sums[1].v[i] = vuzp2q_s32(products[2 * i], products[2 * i + 1]);
    }
  }
};

}  // namespace

constinit const Kernels kNeonI8mmKernels =
    packed_kernels<VecNeon<TwoTokens>>(KernelPath::kNeonI8mm);

}  // namespace shoal::tensor

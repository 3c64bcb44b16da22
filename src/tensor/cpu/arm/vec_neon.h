// VecNeon: the operations of VecPortable in 64-bit Arm's NEON, 16 lanes as four registers.
//
// Dot is how codes and inputs are multiplied, which depends on what the processor has: a struct
// with Codes, prepare and dot (neon_dot.cc, neon_i8mm.cc, which alone include this). Both multiply
// signed bytes, so the bias is taken off biased codes and not added to sums. Thread rule: values.
#pragma once

#include <arm_neon.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tensor/cpu/packed_layout.h"

namespace shoal::tensor {
namespace {

struct NeonFloats {
  float32x4_t v[4];
};
struct NeonInts {
  int32x4_t v[4];
};
struct NeonBytes {
  uint8x16_t v[4];
};
// Sixteen pairs of numbers of 16 bits, their first and their second numbers apart.
struct NeonPairs {
  int16x8_t first[2];
  int16x8_t second[2];
};

template <typename Dot>
struct VecNeon {
  using F = NeonFloats;
  using I = NeonInts;
  using U = NeonBytes;
  // What fits 32 registers.
  static constexpr int kFloatChains = 1;
  static constexpr int kFloatTokens = 4;
  static constexpr int kAttentionQueries = 4;
  static constexpr int attention_vectors(int queries) { return queries >= 4 ? 1 : 4 / queries; }

  static F set(float value) {
    return each([=](int) { return vdupq_n_f32(value); });
  }
  static F load(const float* p) {
    return each([=](int i) { return vld1q_f32(p + 4 * i); });
  }
  static F load_part(const float* p, int64_t count) {
    if (count >= 16) return load(p);
    float lanes[16] = {};
    for (int64_t i = 0; i < count; ++i) lanes[i] = p[i];
    return load(lanes);
  }
  static F load_f16(const void* p) {
    return each([=](int i) { return vcvt_f32_f16(vreinterpret_f16_u16(load_4(p, i))); });
  }
  static F load_bf16(const void* p) {
    return each([=](int i) { return vreinterpretq_f32_u32(vshll_n_u16(load_4(p, i), 16)); });
  }
  static F load_u8(const void* p) { return widen(vld1q_u8(static_cast<const uint8_t*>(p))); }
  static F load_i8(const void* p) {
    // b = (b xor 128) - 128, of unsigned bytes.
    const uint8x16_t shifted = veorq_u8(vld1q_u8(static_cast<const uint8_t*>(p)), vdupq_n_u8(128));
    return sub(widen(shifted), set(128.0F));
  }
  static F load_low4(const void* p) {
    return widen(vandq_u8(vld1q_u8(static_cast<const uint8_t*>(p)), vdupq_n_u8(15)));
  }
  static F load_high4(const void* p) {
    return widen(vshrq_n_u8(vld1q_u8(static_cast<const uint8_t*>(p)), 4));
  }
  static F load_power(const void* p) {
    const auto* bytes = static_cast<const uint8_t*>(p);
    return each([=](int i) {
      const uint32_t bits[4] = {uint32_t{bytes[4 * i]} << 23, uint32_t{bytes[4 * i + 1]} << 23,
                                uint32_t{bytes[4 * i + 2]} << 23, uint32_t{bytes[4 * i + 3]} << 23};
      return vreinterpretq_f32_u32(vmaxq_u32(vld1q_u32(bits), vdupq_n_u32(0x400000)));
    });
  }
  static void store(float* p, F a) {
    for (int i = 0; i < 4; ++i) vst1q_f32(p + 4 * i, a.v[i]);
  }
  static void store_part(float* p, F a, int64_t count) {
    float lanes[16];
    store(lanes, a);
    for (int64_t i = 0; i < count && i < 16; ++i) p[i] = lanes[i];
  }
  static void store_f16(void* p, F a) {
    for (int i = 0; i < 4; ++i) {
      const float32x4_t above = vmaxq_f32(a.v[i], vdupq_n_f32(-65504.0F));
      const float32x4_t bounded = vminq_f32(above, vdupq_n_f32(65504.0F));
      const uint32x4_t finite =
          vcaltq_f32(a.v[i], vdupq_n_f32(std::numeric_limits<float>::infinity()));
      const float16x4_t halves = vcvt_f16_f32(vbslq_f32(finite, bounded, a.v[i]));
      vst1_u16(static_cast<uint16_t*>(p) + 4 * i, vreinterpret_u16_f16(halves));
    }
  }

  static F add(F a, F b) {
    return each([&](int i) { return vaddq_f32(a.v[i], b.v[i]); });
  }
  static F sub(F a, F b) {
    return each([&](int i) { return vsubq_f32(a.v[i], b.v[i]); });
  }
  static F mul(F a, F b) {
    return each([&](int i) { return vmulq_f32(a.v[i], b.v[i]); });
  }
  static F div(F a, F b) {
    return each([&](int i) { return vdivq_f32(a.v[i], b.v[i]); });
  }
  static F fma(F a, F b, F c) {
    return each([&](int i) { return vfmaq_f32(c.v[i], a.v[i], b.v[i]); });
  }
  static F max(F a, F b) {
    return each([&](int i) { return vbslq_f32(vcgtq_f32(a.v[i], b.v[i]), a.v[i], b.v[i]); });
  }
  static F abs(F a) {
    return each([&](int i) { return vabsq_f32(a.v[i]); });
  }
  static F round(F a) {
    return each([&](int i) { return vrndnq_f32(a.v[i]); });
  }
  // In two steps, as 2^n alone may not be a float.
  static F scale_by_power(F a, F n) {
    return each([&](int i) {
      const float32x4_t bounded =
          vmaxq_f32(vminq_f32(n.v[i], vdupq_n_f32(150.0F)), vdupq_n_f32(-150.0F));
      const int32x4_t power = vcvtnq_s32_f32(bounded);
      const int32x4_t half = vshrq_n_s32(power, 1);
      const float32x4_t once = vmulq_f32(a.v[i], power_of_two(half));
      return vmulq_f32(once, power_of_two(vsubq_s32(power, half)));
    });
  }
  static F select_below(F x, float limit, F value, F otherwise) {
    return each([&](int i) {
      return vbslq_f32(vcltq_f32(x.v[i], vdupq_n_f32(limit)), value.v[i], otherwise.v[i]);
    });
  }
  static F keep_lanes(F a, int64_t begin, int64_t end, float other) {
    const int32x4_t first = vdupq_n_s32(bounded_lane(begin));
    const int32x4_t last = vdupq_n_s32(bounded_lane(end));
    return each([&](int i) {
      const int32_t numbers[4] = {4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3};
      const int32x4_t lanes = vld1q_s32(numbers);
      const uint32x4_t kept = vandq_u32(vcgeq_s32(lanes, first), vcltq_s32(lanes, last));
      return vbslq_f32(kept, a.v[i], vdupq_n_f32(other));
    });
  }
  static float reduce_add(F a) {
    return vaddvq_f32(vaddq_f32(vaddq_f32(a.v[0], a.v[2]), vaddq_f32(a.v[1], a.v[3])));
  }
  static float reduce_max(F a) {
    return vmaxvq_f32(vmaxq_f32(vmaxq_f32(a.v[0], a.v[2]), vmaxq_f32(a.v[1], a.v[3])));
  }

  static I round_to_int(F a) {
    return {{vcvtnq_s32_f32(a.v[0]), vcvtnq_s32_f32(a.v[1]), vcvtnq_s32_f32(a.v[2]),
             vcvtnq_s32_f32(a.v[3])}};
  }
  static F to_floats(const I& sums) {
    return each([&](int i) { return vcvtq_f32_s32(sums.v[i]); });
  }
  static int32_t reduce_add(I a) {
    return vaddvq_s32(vaddq_s32(vaddq_s32(a.v[0], a.v[1]), vaddq_s32(a.v[2], a.v[3])));
  }

  static void store_i8(int8_t* p, I a) {
    const int16x8_t low = vcombine_s16(vmovn_s32(a.v[0]), vmovn_s32(a.v[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(a.v[2]), vmovn_s32(a.v[3]));
    vst1q_s8(p, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
  }
  static void store_i16(int16_t* p, I a) {
    for (int i = 0; i < 4; ++i) vst1_s16(p + 4 * i, vmovn_s32(a.v[i]));
  }

  using Pairs = NeonPairs;
  using Pair = int16x4_t;
  static I int_zero() {
    const int32x4_t zero = vdupq_n_s32(0);
    return {{zero, zero, zero, zero}};
  }
  static Pairs load_i8_pairs(const void* p) {
    const int8x16x2_t bytes = vld2q_s8(static_cast<const int8_t*>(p));
    return {{vmovl_s8(vget_low_s8(bytes.val[0])), vmovl_high_s8(bytes.val[0])},
            {vmovl_s8(vget_low_s8(bytes.val[1])), vmovl_high_s8(bytes.val[1])}};
  }
  static Pair load_i16_pair(const int16_t* p) {
    int32_t word = 0;
    std::memcpy(&word, p, sizeof(word));
    return vreinterpret_s16_s32(vdup_n_s32(word));
  }
  static I add_products(I sums, const Pairs& a, Pair b) {
    for (int i = 0; i < 2; ++i) {
      int32x4_t& low = sums.v[2 * i];
      int32x4_t& high = sums.v[2 * i + 1];
      low = vmlal_lane_s16(low, vget_low_s16(a.first[i]), b, 0);
      low = vmlal_lane_s16(low, vget_low_s16(a.second[i]), b, 1);
      high = vmlal_high_lane_s16(high, a.first[i], b, 0);
      high = vmlal_high_lane_s16(high, a.second[i], b, 1);
    }
    return sums;
  }

  static constexpr bool kHasWideTiles = false;
  static constexpr bool kDotsTwoTokens = Dot::kDotsTwoTokens;

  template <bool Biased>
  using Codes = typename Dot::Codes;
  template <bool Biased>
  static Codes<Biased> prepare(const U (&w)[8]) {
    if constexpr (!Biased) return Dot::prepare(w);
    U values[8];
    for (int j = 0; j < 8; ++j) {
      values[j] = each_byte([&](int i) { return veorq_u8(w[j].v[i], vdupq_n_u8(128)); });
    }
    return Dot::prepare(values);
  }
  template <bool Biased, Part P>
  static F dot(const Codes<Biased>& codes, const int8_t* inputs, const BiasSums& /*bias*/) {
    return to_floats(Dot::template dot<P>(codes, inputs));
  }
  // The sums of two neighbouring tokens.
  template <bool HasHalves, typename Dots>
  static void dot_two(const typename Dot::Codes& codes, const int8_t* inputs, Dots (&dots)[2]) {
    NeonInts sums[2];
    Dot::template dot_two<HasHalves ? Part::kFirstHalf : Part::kWhole>(codes, inputs, sums);
    for (int t = 0; t < 2; ++t) dots[t].sum[0] = to_floats(sums[t]);
    if constexpr (HasHalves) {
      Dot::template dot_two<Part::kSecondHalf>(codes, inputs, sums);
      for (int t = 0; t < 2; ++t) dots[t].sum[1] = to_floats(sums[t]);
    }
  }

  static U load_bytes(const void* p) {
    const auto* bytes = static_cast<const uint8_t*>(p);
    return each_byte([=](int i) { return vld1q_u8(bytes + 16 * i); });
  }
  static U zero_bytes() {
    return each_byte([](int) { return vdupq_n_u8(0); });
  }
  static U low_nibbles(U a) {
    return each_byte([&](int i) { return vandq_u8(a.v[i], vdupq_n_u8(15)); });
  }
  static U high_nibbles(U a) {
    return each_byte([&](int i) { return vshrq_n_u8(a.v[i], 4); });
  }
  static U low_nibbles_up(U a) {
    return each_byte([&](int i) { return vshlq_n_u8(a.v[i], 4); });
  }
  static U high_nibbles_kept(U a) {
    return each_byte([&](int i) { return vandq_u8(a.v[i], vdupq_n_u8(0xf0)); });
  }
  static U load_table(const uint8_t* p) {
    return each_byte([=](int) { return vld1q_u8(p); });
  }
  static U lookup(U table, U index) {
    return each_byte([&](int i) { return vqtbl1q_u8(table.v[i], index.v[i]); });
  }
  template <int Value>
  static U add_bit(U a, const void* p) {
    const auto* bits = static_cast<const uint8_t*>(p);
    const uint64_t places = 0x8040201008040201ULL;
    const uint8x16_t place = vreinterpretq_u8_u64(vdupq_n_u64(places));
    return each_byte([&](int i) {
      const uint8x16_t both = vcombine_u8(vdup_n_u8(bits[2 * i]), vdup_n_u8(bits[2 * i + 1]));
      return vaddq_u8(a.v[i], vandq_u8(vtstq_u8(both, place), vdupq_n_u8(Value)));
    });
  }
  template <int Pair, int Shift>
  static U add_pair(U a, U pairs) {
    return each_byte([&](int i) {
      // A shift by a register moves right when it is negative.
      const uint8x16_t moved = vshlq_u8(pairs.v[i], vdupq_n_s8(Shift - 2 * Pair));
      return vorrq_u8(a.v[i], vandq_u8(moved, vdupq_n_u8(3 << Shift)));
    });
  }

 private:
  template <typename Fn>
  static F each(Fn fn) {
    return {{fn(0), fn(1), fn(2), fn(3)}};
  }
  template <typename Fn>
  static U each_byte(Fn fn) {
    return {{fn(0), fn(1), fn(2), fn(3)}};
  }
  static uint16x4_t load_4(const void* p, int i) {
    return vreinterpret_u16_u8(vld1_u8(static_cast<const uint8_t*>(p) + 8 * i));
  }
  static F widen(uint8x16_t bytes) {
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes));
    const uint16x8_t high = vmovl_u8(vget_high_u8(bytes));
    return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))),
             vcvtq_f32_u32(vmovl_u16(vget_high_u16(low))),
             vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))),
             vcvtq_f32_u32(vmovl_u16(vget_high_u16(high)))}};
  }
  static float32x4_t power_of_two(int32x4_t power) {
    return vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(power, vdupq_n_s32(127)), 23));
  }
  static int32_t bounded_lane(int64_t lane) {
    return static_cast<int32_t>(lane < 0 ? 0 : (lane > 16 ? 16 : lane));
  }
};

}  // namespace
}  // namespace shoal::tensor

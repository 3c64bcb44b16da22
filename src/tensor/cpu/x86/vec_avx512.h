// VecAvx512: the operations of VecPortable in AVX-512 F/BW/VL/DQ with VNNI.
//
// Only avx512.cc and amx.cc include it, which are built with those instruction sets on.
// Thread rule: values.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tensor/cpu/packed_layout.h"

namespace shoal::tensor {
namespace {

struct VecAvx512 {
  using F = __m512;
  using I = __m512i;
  using U = __m512i;

  // As many sums at once as hide the latency of additions without running out of registers: per
  // token of a float product, tokens at once, queries at once, and vectors of positions or of
  // values for so many queries.
  static constexpr int kFloatChains = 2;
  static constexpr int kFloatTokens = 8;
  static constexpr int kAttentionQueries = 8;
  static constexpr int attention_vectors(int queries) { return queries >= 8 ? 2 : 4; }

  static F set(float value) { return _mm512_set1_ps(value); }
  static F load(const float* p) { return _mm512_loadu_ps(p); }
  static F load_part(const float* p, int64_t count) {
    return _mm512_maskz_loadu_ps(first_lanes(count), p);
  }
  static F load_f16(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static F load_bf16(const void* p) {
    const __m256i bits = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
  }
  static F load_u8(const void* p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes));
  }
  static F load_i8(const void* p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
  }
  // The low and the high halves of 16 bytes.
  static F load_low4(const void* p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_and_si128(bytes, _mm_set1_epi8(15))));
  }
  static F load_high4(const void* p) {
    const __m128i bytes = _mm_srli_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)), 4);
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_and_si128(bytes, _mm_set1_epi8(15))));
  }
  // 2^(e - 127) of 16 bytes e; infinity for 255.
  static F load_power(const void* p) {
    const __m128i bytes = _mm_loadu_si128(static_cast<const __m128i*>(p));
    const __m512i bits = _mm512_slli_epi32(_mm512_cvtepu8_epi32(bytes), 23);
    return _mm512_castsi512_ps(_mm512_max_epi32(bits, _mm512_set1_epi32(0x400000)));
  }
  static void store(float* p, F a) { _mm512_storeu_ps(p, a); }
  static void store_part(float* p, F a, int64_t count) {
    _mm512_mask_storeu_ps(p, first_lanes(count), a);
  }
  static void store_f16(void* p, F a) {
    const F bounded = _mm512_min_ps(_mm512_max_ps(a, set(-65504.0F)), set(65504.0F));
    const __mmask16 finite = _mm512_cmp_ps_mask(abs(a), set(kInfinity), _CMP_LT_OQ);
    const __m256i halves = _mm512_cvtps_ph(_mm512_mask_blend_ps(finite, a, bounded), kToNearest);
    _mm256_storeu_si256(static_cast<__m256i*>(p), halves);
  }

  static F add(F a, F b) { return _mm512_add_ps(a, b); }
  static F sub(F a, F b) { return _mm512_sub_ps(a, b); }
  static F mul(F a, F b) { return _mm512_mul_ps(a, b); }
  static F div(F a, F b) { return _mm512_div_ps(a, b); }
  static F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
  static F max(F a, F b) { return _mm512_max_ps(a, b); }
  static F abs(F a) { return _mm512_abs_ps(a); }
  static F round(F a) { return _mm512_roundscale_ps(a, kToNearest); }
  static F scale_by_power(F a, F n) { return _mm512_scalef_ps(a, n); }
  static F select_below(F x, float limit, F value, F otherwise) {
    return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, set(limit), _CMP_LT_OQ), otherwise, value);
  }
  static F keep_lanes(F a, int64_t begin, int64_t end, float other) {
    const auto mask = static_cast<__mmask16>(first_lanes(end) & ~first_lanes(begin));
    return _mm512_mask_blend_ps(mask, set(other), a);
  }
  static float reduce_add(F a) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(a), _mm512_extractf32x8_ps(a, 1));
    const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
  }
  static float reduce_max(F a) { return _mm512_reduce_max_ps(a); }

  static I round_to_int(F a) { return _mm512_cvtps_epi32(a); }
  static int32_t reduce_add(I a) { return _mm512_reduce_add_epi32(a); }

  static F to_floats(I a) { return _mm512_cvtepi32_ps(a); }

  static void store_i8(int8_t* p, I a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(a));
  }
  static void store_i16(int16_t* p, I a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(a));
  }

  using Pairs = __m512i;
  using Pair = __m512i;
  static I int_zero() { return _mm512_setzero_si512(); }
  static Pairs load_i8_pairs(const void* p) {
    return _mm512_cvtepi8_epi16(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  }
  static Pair load_i16_pair(const int16_t* p) { return broadcast_word(p); }
  static I add_products(I sums, Pairs a, Pair b) { return _mm512_dpwssd_epi32(sums, a, b); }

  static constexpr bool kHasWideTiles = true;
  static constexpr bool kDotsTwoTokens = false;

  template <bool Biased>
  struct Codes {
    U w[8];
  };
  template <bool Biased>
  static Codes<Biased> prepare(const U (&w)[8]) {
    return {{w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]}};
  }
  template <bool Biased, Part P>
  [[gnu::always_inline]] static F dot(const Codes<Biased>& codes, const int8_t* inputs,
                                      const BiasSums& bias) {
    I sum =
        Biased ? _mm512_set1_epi32(bias.by_part[static_cast<size_t>(P)]) : _mm512_setzero_si512();
    for (int j = first_vector(P); j < end_vector(P); ++j) {
      sum = _mm512_dpbusd_epi32(sum, codes.w[j], broadcast_word(inputs + 4 * j));
    }
    return _mm512_cvtepi32_ps(sum);
  }
  static F to_floats(const int32_t* sums, int32_t bias) {
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_loadu_si512(sums), _mm512_set1_epi32(bias)));
  }

  static U load_bytes(const void* p) { return _mm512_loadu_si512(p); }
  static void store_bytes(void* p, U a) { _mm512_storeu_si512(p, a); }
  static U zero_bytes() { return _mm512_setzero_si512(); }
  static U low_nibbles(U a) { return _mm512_and_si512(a, _mm512_set1_epi8(15)); }
  static U high_nibbles(U a) {
    return _mm512_and_si512(_mm512_srli_epi16(a, 4), _mm512_set1_epi8(15));
  }
  static U low_nibbles_up(U a) {
    return _mm512_and_si512(_mm512_slli_epi16(a, 4), _mm512_set1_epi8(-16));
  }
  static U high_nibbles_kept(U a) { return _mm512_and_si512(a, _mm512_set1_epi8(-16)); }
  // A table of 16 bytes.
  static U load_table(const uint8_t* p) {
    return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static U lookup(U table, U index) { return _mm512_shuffle_epi8(table, index); }
  template <int Value>
  static U add_bit(U a, const void* p) {
    uint64_t bits = 0;
    std::memcpy(&bits, p, sizeof(bits));
    return _mm512_mask_add_epi8(a, bits, a, _mm512_set1_epi8(static_cast<char>(Value)));
  }
  template <int Pair, int Shift>
  static U add_pair(U a, U pairs) {
    constexpr int left = Shift > 2 * Pair ? Shift - 2 * Pair : 0;
    constexpr int right = 2 * Pair > Shift ? 2 * Pair - Shift : 0;
    const __m512i moved = _mm512_srli_epi16(_mm512_slli_epi16(pairs, left), right);
    // a | (moved & mask)
    return _mm512_ternarylogic_epi32(a, moved, _mm512_set1_epi8(static_cast<char>(3 << Shift)),
                                     0xf8);
  }

 private:
  static constexpr int kToNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  static I broadcast_word(const void* p) {
    int32_t word = 0;
    std::memcpy(&word, p, sizeof(word));
    return _mm512_set1_epi32(word);
  }
  static __mmask16 first_lanes(int64_t count) {
    if (count >= 16) return 0xffff;
    return count <= 0 ? __mmask16{0} : static_cast<__mmask16>((1U << count) - 1U);
  }
};

}  // namespace
}  // namespace shoal::tensor

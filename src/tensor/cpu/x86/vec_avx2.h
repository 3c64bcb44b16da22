// VecAvx2: the operations of VecPortable in AVX2 with FMA and F16C, 16 lanes as two registers.
//
// Dot is how codes and inputs are multiplied, which depends on what the processor has: a struct
// with Codes<Biased>, prepare, start and add, and add_products for pairs of 16 bits (avx2.cc,
// avx_vnni.cc, which alone include this).
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

struct Avx2Ints {
  __m256i lo, hi;
};

template <typename Dot>
struct VecAvx2 {
  struct F {
    __m256 lo, hi;
  };
  using I = Avx2Ints;
  using U = Avx2Ints;
  // What fits 16 registers.
  static constexpr int kFloatChains = 1;
  static constexpr int kFloatTokens = 4;
  static constexpr int kAttentionQueries = 4;
  static constexpr int attention_vectors(int queries) { return queries >= 4 ? 1 : 4 / queries; }

  static F set(float value) { return {_mm256_set1_ps(value), _mm256_set1_ps(value)}; }
  static F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static F load_part(const float* p, int64_t count) {
    if (count >= 16) return load(p);
    const I mask = first_lanes(count);
    return {_mm256_maskload_ps(p, mask.lo), _mm256_maskload_ps(p + 8, mask.hi)};
  }
  static F load_f16(const void* p) {
    const auto* halves = static_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
  }
  static F load_bf16(const void* p) {
    const auto* halves = static_cast<const __m128i*>(p);
    return {bf16_lanes(_mm_loadu_si128(halves)), bf16_lanes(_mm_loadu_si128(halves + 1))};
  }
  static F load_u8(const void* p) { return u8_lanes(load_16(p)); }
  static F load_i8(const void* p) {
    const __m128i bytes = load_16(p);
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
  }
  static F load_low4(const void* p) {
    return u8_lanes(_mm_and_si128(load_16(p), _mm_set1_epi8(15)));
  }
  static F load_high4(const void* p) {
    return u8_lanes(_mm_and_si128(_mm_srli_epi16(load_16(p), 4), _mm_set1_epi8(15)));
  }
  static F load_power(const void* p) {
    const __m128i bytes = load_16(p);
    return {power_lanes(bytes), power_lanes(_mm_srli_si128(bytes, 8))};
  }
  static void store(float* p, F a) {
    _mm256_storeu_ps(p, a.lo);
    _mm256_storeu_ps(p + 8, a.hi);
  }
  static void store_part(float* p, F a, int64_t count) {
    if (count >= 16) return store(p, a);
    const I mask = first_lanes(count);
    _mm256_maskstore_ps(p, mask.lo, a.lo);
    _mm256_maskstore_ps(p + 8, mask.hi, a.hi);
  }
  static void store_f16(void* p, F a) {
    auto* halves = static_cast<__m128i*>(p);
    _mm_storeu_si128(halves, _mm256_cvtps_ph(bounded_for_f16(a.lo), kToNearest));
    _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(bounded_for_f16(a.hi), kToNearest));
  }

  static F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
  static F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
  static F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
  static F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
  static F fma(F a, F b, F c) {
    return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
  }
  static F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
  static F abs(F a) {
    const __m256 sign = _mm256_set1_ps(-0.0F);
    return {_mm256_andnot_ps(sign, a.lo), _mm256_andnot_ps(sign, a.hi)};
  }
  static F round(F a) {
    return {_mm256_round_ps(a.lo, kToNearest), _mm256_round_ps(a.hi, kToNearest)};
  }
  static F scale_by_power(F a, F n) { return {scale_lanes(a.lo, n.lo), scale_lanes(a.hi, n.hi)}; }
  static F select_below(F x, float limit, F value, F otherwise) {
    const __m256 bound = _mm256_set1_ps(limit);
    return {_mm256_blendv_ps(otherwise.lo, value.lo, _mm256_cmp_ps(x.lo, bound, _CMP_LT_OQ)),
            _mm256_blendv_ps(otherwise.hi, value.hi, _mm256_cmp_ps(x.hi, bound, _CMP_LT_OQ))};
  }
  static F keep_lanes(F a, int64_t begin, int64_t end, float other) {
    const I after = first_lanes(end);
    const I before = first_lanes(begin);
    const __m256 others = _mm256_set1_ps(other);
    return {_mm256_blendv_ps(others, a.lo,
                             _mm256_castsi256_ps(_mm256_andnot_si256(before.lo, after.lo))),
            _mm256_blendv_ps(others, a.hi,
                             _mm256_castsi256_ps(_mm256_andnot_si256(before.hi, after.hi)))};
  }
  static float reduce_add(F a) {
    const __m256 half = _mm256_add_ps(a.lo, a.hi);
    const __m128 quarter = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_add_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_add_ss(pair, _mm_movehdup_ps(pair)));
  }
  static float reduce_max(F a) {
    const __m256 half = _mm256_max_ps(a.lo, a.hi);
    const __m128 quarter = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
    const __m128 pair = _mm_max_ps(quarter, _mm_movehl_ps(quarter, quarter));
    return _mm_cvtss_f32(_mm_max_ss(pair, _mm_movehdup_ps(pair)));
  }

  static I int_zero() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
  static I round_to_int(F a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
  static F to_floats(I a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
  static int32_t reduce_add(I a) {
    const __m256i half = _mm256_add_epi32(a.lo, a.hi);
    const __m128i quarter =
        _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    const __m128i pair = _mm_add_epi32(quarter, _mm_shuffle_epi32(quarter, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(pair, _mm_shuffle_epi32(pair, 0xb1)));
  }

  static void store_i8(int8_t* p, I a) {
    const __m256i halves = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
    const __m128i bytes =
        _mm_packs_epi16(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
  }
  static void store_i16(int16_t* p, I a) {
    const __m256i halves = _mm256_permute4x64_epi64(_mm256_packs_epi32(a.lo, a.hi), 0xd8);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), halves);
  }

  using Pairs = Avx2Ints;
  using Pair = __m256i;
  static Pairs load_i8_pairs(const void* p) {
    const auto* bytes = static_cast<const __m128i*>(p);
    return {_mm256_cvtepi8_epi16(_mm_loadu_si128(bytes)),
            _mm256_cvtepi8_epi16(_mm_loadu_si128(bytes + 1))};
  }
  static Pair load_i16_pair(const int16_t* p) { return broadcast_word(p); }
  static I add_products(I sums, Pairs a, Pair b) {
    return {Dot::add_products(sums.lo, a.lo, b), Dot::add_products(sums.hi, a.hi, b)};
  }

  static constexpr bool kHasWideTiles = false;
  static constexpr bool kDotsTwoTokens = false;

  template <bool Biased>
  using Codes = typename Dot::template Codes<Biased>;
  template <bool Biased>
  static Codes<Biased> prepare(const U (&w)[8]) {
    return Dot::template prepare<Biased>(w);
  }
  template <bool Biased, Part P>
  [[gnu::always_inline]] static F dot(const Codes<Biased>& codes, const int8_t* inputs,
                                      const BiasSums& bias) {
    const __m256i start = Dot::template start<Biased>(bias.by_part[static_cast<size_t>(P)]);
    I sums = {start, start};
    for (int j = first_vector(P); j < end_vector(P); ++j) {
      Dot::template add<Biased>(sums, codes, j, broadcast_word(inputs + 4 * j));
    }
    return to_floats(sums);
  }

  static U load_bytes(const void* p) {
    const auto* halves = static_cast<const __m256i*>(p);
    return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
  }
  static U zero_bytes() { return int_zero(); }
  static U low_nibbles(U a) {
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
  }
  static U high_nibbles(U a) {
    return low_nibbles({_mm256_srli_epi16(a.lo, 4), _mm256_srli_epi16(a.hi, 4)});
  }
  static U low_nibbles_up(U a) {
    return high_nibbles_kept({_mm256_slli_epi16(a.lo, 4), _mm256_slli_epi16(a.hi, 4)});
  }
  static U high_nibbles_kept(U a) {
    const __m256i mask = _mm256_set1_epi8(-16);
    return {_mm256_and_si256(a.lo, mask), _mm256_and_si256(a.hi, mask)};
  }
  static U load_table(const uint8_t* p) {
    const __m256i table = _mm256_broadcastsi128_si256(load_16(p));
    return {table, table};
  }
  static U lookup(U table, U index) {
    return {_mm256_shuffle_epi8(table.lo, index.lo), _mm256_shuffle_epi8(table.hi, index.hi)};
  }
  template <int Value>
  static U add_bit(U a, const void* p) {
    int32_t words[2];
    std::memcpy(words, p, sizeof(words));
    return {_mm256_add_epi8(a.lo, spread_bits<Value>(words[0])),
            _mm256_add_epi8(a.hi, spread_bits<Value>(words[1]))};
  }
  template <int Pair, int Shift>
  static U add_pair(U a, U pairs) {
    return {_mm256_or_si256(a.lo, moved_pair<Pair, Shift>(pairs.lo)),
            _mm256_or_si256(a.hi, moved_pair<Pair, Shift>(pairs.hi))};
  }

 private:
  static constexpr int kToNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;

  // Finite values within the range of halves; what is not finite stays.
  static __m256 bounded_for_f16(__m256 a) {
    const __m256 limit = _mm256_set1_ps(65504.0F);
    const __m256 sign = _mm256_set1_ps(-0.0F);
    const __m256 bounded = _mm256_min_ps(_mm256_max_ps(a, _mm256_xor_ps(limit, sign)), limit);
    const __m256 infinity = _mm256_set1_ps(std::numeric_limits<float>::infinity());
    const __m256 finite = _mm256_cmp_ps(_mm256_andnot_ps(sign, a), infinity, _CMP_LT_OQ);
    return _mm256_blendv_ps(a, bounded, finite);
  }
  static __m256i broadcast_word(const void* p) {
    int32_t word = 0;
    std::memcpy(&word, p, sizeof(word));
    return _mm256_set1_epi32(word);
  }
  static __m128i load_16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
  static I first_lanes(int64_t count) {
    const __m256i counts =
        _mm256_set1_epi32(static_cast<int32_t>(count < 0 ? 0 : (count > 16 ? 16 : count)));
    const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return {_mm256_cmpgt_epi32(counts, numbers),
            _mm256_cmpgt_epi32(counts, _mm256_add_epi32(numbers, _mm256_set1_epi32(8)))};
  }
  static __m256 bf16_lanes(__m128i bits) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static F u8_lanes(__m128i bytes) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
  }
  static __m256 power_lanes(__m128i bytes) {
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23);
    return _mm256_castsi256_ps(_mm256_max_epi32(bits, _mm256_set1_epi32(0x400000)));
  }
  // a * 2^n in two steps, as 2^n alone may not be a float.
  static __m256 scale_lanes(__m256 a, __m256 n) {
    const __m256 limit = _mm256_set1_ps(150.0F);
    const __m256 bounded =
        _mm256_max_ps(_mm256_min_ps(n, limit), _mm256_sub_ps(_mm256_setzero_ps(), limit));
    const __m256i power = _mm256_cvtps_epi32(bounded);
    const __m256i half = _mm256_srai_epi32(power, 1);
    const __m256 once = _mm256_mul_ps(a, power_of_two(half));
    return _mm256_mul_ps(once, power_of_two(_mm256_sub_epi32(power, half)));
  }
  static __m256 power_of_two(__m256i power) {
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_add_epi32(power, _mm256_set1_epi32(127)), 23));
  }
  // Byte i is Value where bit i is set.
  template <int Value>
  static __m256i spread_bits(int32_t word) {
    const __m256i place = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2,
                                           2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3);
    const __m256i bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201ULL));
    const __m256i bytes = _mm256_shuffle_epi8(_mm256_set1_epi32(word), place);
    const __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(bytes, bit), bit);
    return _mm256_and_si256(set, _mm256_set1_epi8(static_cast<char>(Value)));
  }
  template <int Pair, int Shift>
  static __m256i moved_pair(__m256i pairs) {
    constexpr int left = Shift > 2 * Pair ? Shift - 2 * Pair : 0;
    constexpr int right = 2 * Pair > Shift ? 2 * Pair - Shift : 0;
    return _mm256_and_si256(_mm256_srli_epi16(_mm256_slli_epi16(pairs, left), right),
                            _mm256_set1_epi8(static_cast<char>(3 << Shift)));
  }
};

}  // namespace
}  // namespace shoal::tensor

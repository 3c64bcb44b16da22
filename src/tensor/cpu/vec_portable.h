// VecPortable: 16 float lanes and 64 bytes in plain C++, for processors without a vector source.
//
// The kernel templates (matmul_kernel.h, attention_kernel.h, vector_kernel.h) are written against
// this set of operations; each instruction set gives the same set (x86/vec_avx512.h). Only one
// source per set includes it. max(a, b) gives b when either is NaN. Thread rule: values.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/cpu/packed_layout.h"
#include "tensor/float16.h"

namespace shoal::tensor {
namespace {

struct VecPortable {
  using F = std::array<float, 16>;
  using I = std::array<int32_t, 16>;
  using U = std::array<uint8_t, 64>;

  // As many sums at once as hide the latency of additions without running out of registers: per
  // token of a float product, tokens at once, queries at once, and vectors of positions or of
  // values for so many queries.
  static constexpr int kFloatChains = 2;
  static constexpr int kFloatTokens = 8;
  static constexpr int kAttentionQueries = 8;
  static constexpr int attention_vectors(int queries) { return queries >= 8 ? 2 : 4; }

  template <typename Fn>
  static F each(Fn fn) {
    F out;
    for (size_t i = 0; i < 16; ++i) out[i] = fn(i);
    return out;
  }

  static F set(float value) {
    return each([=](size_t) { return value; });
  }
  static F load(const float* p) {
    F out;
    std::memcpy(out.data(), p, sizeof(out));
    return out;
  }
  static F load_part(const float* p, int64_t count) {
    return each([=](size_t i) { return static_cast<int64_t>(i) < count ? p[i] : 0.0F; });
  }
  static F load_f16(const void* p) {
    std::array<uint16_t, 16> bits;
    std::memcpy(bits.data(), p, sizeof(bits));
    return each([&](size_t i) { return f16_to_float(bits[i]); });
  }
  static F load_bf16(const void* p) {
    std::array<uint16_t, 16> bits;
    std::memcpy(bits.data(), p, sizeof(bits));
    return each([&](size_t i) { return bf16_to_float(bits[i]); });
  }
  static F load_u8(const void* p) {
    const auto* bytes = static_cast<const uint8_t*>(p);
    return each([=](size_t i) { return static_cast<float>(bytes[i]); });
  }
  static F load_i8(const void* p) {
    const auto* bytes = static_cast<const int8_t*>(p);
    return each([=](size_t i) { return static_cast<float>(bytes[i]); });
  }
  // The low and the high halves of 16 bytes.
  static F load_low4(const void* p) {
    const auto* bytes = static_cast<const uint8_t*>(p);
    return each([=](size_t i) { return static_cast<float>(bytes[i] & 15); });
  }
  static F load_high4(const void* p) {
    const auto* bytes = static_cast<const uint8_t*>(p);
    return each([=](size_t i) { return static_cast<float>(bytes[i] >> 4); });
  }
  // 2^(e - 127) of 16 bytes e; infinity for 255.
  static F load_power(const void* p) {
    const auto* bytes = static_cast<const uint8_t*>(p);
    return each([=](size_t i) {
      return std::bit_cast<float>(std::max(uint32_t{bytes[i]} << 23, uint32_t{0x400000}));
    });
  }
  static void store(float* p, const F& a) { std::memcpy(p, a.data(), sizeof(a)); }
  static void store_part(float* p, const F& a, int64_t count) { std::copy_n(a.begin(), count, p); }
  // As halves, with the bits of float_to_f16_saturated.
  static void store_f16(void* p, const F& a) {
    std::array<uint16_t, 16> bits;
    for (size_t i = 0; i < 16; ++i) bits[i] = float_to_f16_saturated(a[i]);
    std::memcpy(p, bits.data(), sizeof(bits));
  }

  static F add(const F& a, const F& b) {
    return each([&](size_t i) { return a[i] + b[i]; });
  }
  static F sub(const F& a, const F& b) {
    return each([&](size_t i) { return a[i] - b[i]; });
  }
  static F mul(const F& a, const F& b) {
    return each([&](size_t i) { return a[i] * b[i]; });
  }
  static F div(const F& a, const F& b) {
    return each([&](size_t i) { return a[i] / b[i]; });
  }
  // a * b + c, rounded once or twice.
  static F fma(const F& a, const F& b, const F& c) {
    return each([&](size_t i) { return a[i] * b[i] + c[i]; });
  }
  static F max(const F& a, const F& b) {
    return each([&](size_t i) { return a[i] > b[i] ? a[i] : b[i]; });
  }
  static F abs(const F& a) {
    return each([&](size_t i) { return std::fabs(a[i]); });
  }
  static F round(const F& a) {
    return each([&](size_t i) { return std::nearbyint(a[i]); });
  }
  // a * 2^n for whole n in [-150, 150].
  static F scale_by_power(const F& a, const F& n) {
    return each([&](size_t i) {
      if (!(std::fabs(n[i]) <= 150.0F)) return std::isnan(n[i]) ? n[i] : a[i];
      const int power = static_cast<int>(n[i]);
      const int half = power / 2;
      return a[i] * power_of_two(half) * power_of_two(power - half);
    });
  }
  // Where x < limit: value, elsewhere otherwise.
  static F select_below(const F& x, float limit, const F& value, const F& otherwise) {
    return each([&](size_t i) { return x[i] < limit ? value[i] : otherwise[i]; });
  }
  // Lanes [begin, end) of a; other in the rest.
  static F keep_lanes(const F& a, int64_t begin, int64_t end, float other) {
    return each([&](size_t i) {
      const auto lane = static_cast<int64_t>(i);
      return lane >= begin && lane < end ? a[i] : other;
    });
  }
  // In one fixed order: halves, quarters, ...
  static float reduce_add(F a) {
    for (size_t width = 8; width > 0; width /= 2) {
      for (size_t i = 0; i < width; ++i) a[i] += a[i + width];
    }
    return a[0];
  }
  static float reduce_max(const F& a) { return *std::max_element(a.begin(), a.end()); }

  // Finite values within the range of int32.
  static I round_to_int(const F& a) {
    I out;
    for (size_t i = 0; i < 16; ++i) out[i] = static_cast<int32_t>(std::nearbyint(a[i]));
    return out;
  }
  static int32_t reduce_add(const I& a) {
    int32_t sum = 0;
    for (const int32_t value : a) sum += value;
    return sum;
  }

  static F to_floats(const I& a) { return to_floats(a.data(), 0); }

  static void store_i8(int8_t* p, const I& a) {
    for (size_t i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(a[i]);
  }
  static void store_i16(int16_t* p, const I& a) {
    for (size_t i = 0; i < 16; ++i) p[i] = static_cast<int16_t>(a[i]);
  }

  // Sixteen pairs of numbers of 16 bits, and one pair for all of them.
  using Pairs = std::array<int16_t, 32>;
  using Pair = std::array<int16_t, 2>;
  static I int_zero() { return {}; }
  // From 32 signed bytes.
  static Pairs load_i8_pairs(const void* p) {
    const auto* bytes = static_cast<const int8_t*>(p);
    Pairs out;
    std::copy_n(bytes, out.size(), out.begin());
    return out;
  }
  static Pair load_i16_pair(const int16_t* p) { return {p[0], p[1]}; }
  // sums plus both products of each pair with the one.
  static I add_products(const I& sums, const Pairs& a, const Pair& b) {
    I out;
    for (size_t i = 0; i < 16; ++i) out[i] = sums[i] + a[2 * i] * b[0] + a[2 * i + 1] * b[1];
    return out;
  }

  // Whether 16 tokens are worth computing at once, and whether pairs of tokens have a dot product
  // of their own (dot_two, see arm/neon_i8mm.cc).
  static constexpr bool kHasWideTiles = false;
  static constexpr bool kDotsTwoTokens = false;

  // The codes of a block as dot reads them. Biased codes stand for values less 128.
  template <bool Biased>
  struct Codes {
    const U* w;
  };
  template <bool Biased>
  static Codes<Biased> prepare(const U (&w)[8]) {
    return {w};
  }
  // out[lane] = sum over a part's columns of value * input. A set that multiplies biased codes as
  // they are adds the bias of the inputs.
  template <bool Biased, Part P>
  static F dot(const Codes<Biased>& codes, const int8_t* inputs, const BiasSums& bias) {
    I sum{};
    for (size_t j = first_vector(P); j < end_vector(P); ++j) {
      for (size_t lane = 0; lane < 16; ++lane) {
        for (size_t i = 0; i < 4; ++i) sum[lane] += codes.w[j][4 * lane + i] * inputs[4 * j + i];
      }
    }
    return to_floats(sum.data(), Biased ? bias.by_part[static_cast<size_t>(P)] : 0);
  }
  // 16 sums plus the bias.
  static F to_floats(const int32_t* sums, int32_t bias) {
    return each([=](size_t i) { return static_cast<float>(sums[i] + bias); });
  }

  static U load_bytes(const void* p) {
    U out;
    std::memcpy(out.data(), p, sizeof(out));
    return out;
  }
  static void store_bytes(void* p, const U& a) { std::memcpy(p, a.data(), sizeof(a)); }
  static U zero_bytes() { return {}; }
  static U low_nibbles(const U& a) {
    U out;
    for (size_t i = 0; i < 64; ++i) out[i] = a[i] & 15U;
    return out;
  }
  static U high_nibbles(const U& a) {
    U out;
    for (size_t i = 0; i < 64; ++i) out[i] = static_cast<uint8_t>(a[i] >> 4);
    return out;
  }
  // The same in the upper half of the bytes.
  static U low_nibbles_up(const U& a) {
    U out;
    for (size_t i = 0; i < 64; ++i) out[i] = static_cast<uint8_t>(a[i] << 4);
    return out;
  }
  static U high_nibbles_kept(const U& a) {
    U out;
    for (size_t i = 0; i < 64; ++i) out[i] = a[i] & 0xf0U;
    return out;
  }
  // A table of 16 bytes, and its entries by index (0 to 15).
  static U load_table(const uint8_t* p) {
    U out;
    for (size_t i = 0; i < 64; ++i) out[i] = p[i % 16];
    return out;
  }
  static U lookup(const U& table, const U& index) {
    U out;
    for (size_t i = 0; i < 64; ++i) out[i] = table[index[i]];
    return out;
  }
  // a + Value where the bit of the 64 at p is set.
  template <int Value>
  static U add_bit(const U& a, const void* p) {
    const auto* bits = static_cast<const uint8_t*>(p);
    U out;
    for (size_t i = 0; i < 64; ++i) {
      out[i] = static_cast<uint8_t>(a[i] + ((bits[i / 8] >> (i % 8)) & 1) * Value);
    }
    return out;
  }
  // a plus bits 2 Pair and 2 Pair + 1 of `pairs`, moved to bits Shift and Shift + 1.
  template <int Pair, int Shift>
  static U add_pair(const U& a, const U& pairs) {
    U out;
    for (size_t i = 0; i < 64; ++i) {
      out[i] = static_cast<uint8_t>(a[i] + (((pairs[i] >> (2 * Pair)) & 3) << Shift));
    }
    return out;
  }

 private:
  static float power_of_two(int power) {  // power in [-126, 127]
    return std::bit_cast<float>(static_cast<uint32_t>(power + 127) << 23);
  }
};

}  // namespace
}  // namespace shoal::tensor

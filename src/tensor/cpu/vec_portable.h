// VecPortable: 16 float lanes and 64 bytes in plain C++, for processors without a vector source.
//
// The kernel templates (matmul_kernel.h, attention_kernel.h, vector_kernel.h) are written against
// this set of operations; each instruction set gives the same set (vec_avx512.h). Only one source
// per set includes it. max(a, b) gives b when either is NaN. Thread rule: values.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tensor/float16.h"

namespace shoal::tensor {
namespace {

struct VecPortable {
  using F = std::array<float, 16>;
  using I = std::array<int32_t, 16>;
  using U = std::array<uint8_t, 64>;

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
  static void store(float* p, const F& a) { std::memcpy(p, a.data(), sizeof(a)); }
  static void store_part(float* p, const F& a, int64_t count) { std::copy_n(a.begin(), count, p); }

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

  static I int_zero() { return {}; }
  // acc[lane] += sum over i < 4 of w[4 lane + i] * a[i].
  static I dot4(const I& acc, const U& w, const int8_t* a) {
    I out = acc;
    for (size_t lane = 0; lane < 16; ++lane) {
      for (size_t i = 0; i < 4; ++i) out[lane] += w[4 * lane + i] * a[i];
    }
    return out;
  }
  // 256 * high + low.
  static I join_limbs(const I& high, const I& low) {
    I out;
    for (size_t i = 0; i < 16; ++i) out[i] = high[i] * 256 + low[i];
    return out;
  }
  static F to_float(const I& a) {
    return each([&](size_t i) { return static_cast<float>(a[i]); });
  }
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
  // a = 256 * high + low with both in int8.
  static void store_limbs(const I& a, int8_t* high, int8_t* low) {
    for (size_t i = 0; i < 16; ++i) {
      const int32_t upper = (a[i] + 128) >> 8;
      high[i] = static_cast<int8_t>(upper);
      low[i] = static_cast<int8_t>(a[i] - upper * 256);
    }
  }

  static U load_bytes(const void* p) {
    U out;
    std::memcpy(out.data(), p, sizeof(out));
    return out;
  }
  // Some combination of all the bits, for reads that must not be optimized away.
  static I combine(const I& a, const U& b) {
    I out = std::bit_cast<I>(b);
    for (size_t i = 0; i < 16; ++i) out[i] ^= a[i];
    return out;
  }
  static uint64_t first_word(const I& a) { return static_cast<uint32_t>(a[0] ^ a[1]); }
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
  // a + 16 where the bit of the 64 at p is set.
  static U add_bit4(const U& a, const void* p) {
    const auto* bits = static_cast<const uint8_t*>(p);
    U out;
    for (size_t i = 0; i < 64; ++i) {
      out[i] = static_cast<uint8_t>(a[i] + (((bits[i / 8] >> (i % 8)) & 1) << 4));
    }
    return out;
  }
  // a plus bits 2*pair and 2*pair+1 of `high`, moved to bits 4 and 5.
  template <int Pair>
  static U add_bits45(const U& a, const U& high) {
    U out;
    for (size_t i = 0; i < 64; ++i) {
      out[i] = static_cast<uint8_t>(a[i] + (((high[i] >> (2 * Pair)) & 3) << 4));
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

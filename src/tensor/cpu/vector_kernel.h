// Kernels over plain float vectors: exp, dot, norms, SwiGLU; written once over a vector set V.
//
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>

namespace shoal::tensor {

// exp(x), where x is at most 104 or NaN, to about 1 ulp: x = n ln 2 + r with |r| <= ln 2 / 2,
// Taylor's series of exp(r) to r^7 (the rest is below 6e-9), times 2^n. Below -87.3 it gives 0,
// above 88.8 infinity, NaN for NaN.
template <typename V>
inline typename V::F exp_lanes_to_104(typename V::F x) {
  using F = typename V::F;
  // -104 is beyond float's range. The order of max's arguments lets NaN through.
  const F safe = V::max(V::set(-104.0F), x);
  const F n = V::round(V::mul(safe, V::set(1.44269504F)));
  F r = V::fma(n, V::set(-0.693145752F), safe);  // ln 2 in two parts; n times the first is exact
  r = V::fma(n, V::set(-1.42860677e-06F), r);
  F p = V::set(1.0F / 5040.0F);
  for (const float coefficient :
       {1.0F / 720.0F, 1.0F / 120.0F, 1.0F / 24.0F, 1.0F / 6.0F, 0.5F, 1.0F, 1.0F}) {
    p = V::fma(p, r, V::set(coefficient));
  }
  return V::select_below(x, -87.3F, V::set(0.0F), V::scale_by_power(p, n));
}

// The same for any x.
template <typename V>
inline typename V::F exp_lanes(typename V::F x) {
  const auto zero = V::set(0.0F);
  return exp_lanes_to_104<V>(V::sub(zero, V::max(V::set(-104.0F), V::sub(zero, x))));
}

template <typename V>
float dot_lanes(const float* a, const float* b, int64_t count) {
  auto even = V::set(0.0F);
  auto odd = V::set(0.0F);
  int64_t i = 0;
  for (; i + 32 <= count; i += 32) {
    even = V::fma(V::load(a + i), V::load(b + i), even);
    odd = V::fma(V::load(a + i + 16), V::load(b + i + 16), odd);
  }
  for (; i < count; i += 16) {
    even = V::fma(V::load_part(a + i, count - i), V::load_part(b + i, count - i), even);
  }
  return V::reduce_add(V::add(even, odd));
}

template <typename V>
void scale_by_weight_lanes(const float* x, const float* weight, float factor, float* y,
                           int64_t count) {
  const auto factors = V::set(factor);
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t left = count - i;
    const auto scaled = V::mul(V::load_part(x + i, left), factors);
    V::store_part(y + i, V::mul(scaled, V::load_part(weight + i, left)), left < 16 ? left : 16);
  }
}

// Halves of x; finite values beyond their range become the largest.
template <typename V>
void store_halves_lanes(const float* x, int64_t count, std::byte* halves) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) V::store_f16(halves + 2 * i, V::load(x + i));
  if (i == count) return;
  std::byte last[32];
  V::store_f16(last, V::load_part(x + i, count - i));
  std::memcpy(halves + 2 * i, last, static_cast<size_t>(2 * (count - i)));
}

template <typename V>
void swiglu_lanes(const float* gate, const float* up, float* out, int64_t count) {
  const auto one = V::set(1.0F);
  for (int64_t i = 0; i < count; i += 16) {
    const int64_t left = count - i;
    const auto g = V::load_part(gate + i, left);
    const auto silu = V::div(g, V::add(one, exp_lanes<V>(V::sub(V::set(0.0F), g))));
    V::store_part(out + i, V::mul(silu, V::load_part(up + i, left)), left < 16 ? left : 16);
  }
}

template <typename V>
double sum_exp_lanes(const float* x, float shift, int64_t count) {
  double total = 0;
  // Short runs in float lanes, their sums in double.
  for (int64_t begin = 0; begin < count; begin += 1024) {
    const int64_t end = begin + 1024 < count ? begin + 1024 : count;
    auto sums = V::set(0.0F);
    for (int64_t i = begin; i < end; i += 16) {
      const auto lanes = exp_lanes<V>(V::sub(V::load_part(x + i, end - i), V::set(shift)));
      sums = V::add(sums, V::keep_lanes(lanes, 0, end - i, 0.0F));
    }
    total += static_cast<double>(V::reduce_add(sums));
  }
  return total;
}

// Twelve independent chains of multiply-adds: enough to hide the latency of current processors.
template <typename V>
float float_rounds_lanes(int64_t rounds) {
  typename V::F chains[12];
  for (int c = 0; c < 12; ++c) chains[c] = V::set(static_cast<float>(c));
  const auto factor = V::set(0.999F);
  const auto step = V::set(0.001F);
  for (int64_t i = 0; i < rounds; ++i) {
    for (auto& chain : chains) chain = V::fma(chain, factor, step);
  }
  auto total = V::set(0.0F);
  for (const auto& chain : chains) total = V::add(total, chain);
  return V::reduce_add(total);
}

}  // namespace shoal::tensor

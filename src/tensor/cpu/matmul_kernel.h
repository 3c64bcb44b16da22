// The packed matmul kernels, written once over a vector set V (vec_portable.h says which).
//
// Quantized types: a block's codes w (unsigned) times the two 8-bit halves of 16-bit activations in
// exact 32-bit integer sums (at most 32 * 255 * 32640 < 2^31), joined, then scaled in float32:
//   y[row] += d[row] * (scale * sum w a) + offset[row] * (scale * sum a)
// where offset is the type's minimum, or -center * d for a type whose zero is the code `center`.
// Each lane is one row, so there is no sum across lanes; a token's sums run in the same order in
// tiles of every width. Thread rule: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>

#include "tensor/cpu/kernels.h"
#include "tensor/dtype.h"

namespace shoal::tensor {

// What the columns of one block of 16 rows are multiplied with.
template <typename V>
struct BlockFactors {
  typename V::F scale[2];  // of columns 0-15 and 16-31; [1] only in Q6_K
  typename V::F offset[2];
};

// The header of a K type's super-block.
template <typename V>
struct SuperFactors {
  typename V::F scale;
  typename V::F min;
};

constexpr bool has_header(DType type) { return packed_shape(type).header_bytes > 0; }
constexpr bool has_half_scales(DType type) { return type == DType::kQ6_K; }
constexpr bool has_bit4(DType type) {
  return type == DType::kQ5_0 || type == DType::kQ5_1 || type == DType::kQ5_K;
}
constexpr float zero_code(DType type) {
  switch (type) {
    case DType::kQ4_0:
      return 8;
    case DType::kQ5_0:
      return 16;
    case DType::kQ6_K:
      return 32;
    default:
      return 128;  // Q8_0
  }
}

// Where the scales of a block lie.
constexpr int64_t codes_bytes(DType type) {
  if (type == DType::kQ8_0) return 512;
  return 256 + (has_bit4(type) ? 64 : 0) + (type == DType::kQ6_K ? 128 : 0);
}

template <typename V, DType Type>
inline void load_packed_codes(const std::byte* block, typename V::U (&w)[8]) {
  if constexpr (Type == DType::kQ8_0) {
    for (int j = 0; j < 8; ++j) w[j] = V::load_bytes(block + 64 * j);
    return;
  }
  for (int k = 0; k < 4; ++k) {
    const auto nibbles = V::load_bytes(block + 64 * k);
    w[k] = V::low_nibbles(nibbles);
    w[k + 4] = V::high_nibbles(nibbles);
  }
  if constexpr (has_bit4(Type)) {
    for (int j = 0; j < 8; ++j) w[j] = V::add_bit4(w[j], block + 256 + 8 * j);
  }
  if constexpr (Type == DType::kQ6_K) {
    for (int h = 0; h < 2; ++h) {
      const auto high = V::load_bytes(block + 256 + 64 * h);
      w[4 * h] = V::template add_bits45<0>(w[4 * h], high);
      w[4 * h + 1] = V::template add_bits45<1>(w[4 * h + 1], high);
      w[4 * h + 2] = V::template add_bits45<2>(w[4 * h + 2], high);
      w[4 * h + 3] = V::template add_bits45<3>(w[4 * h + 3], high);
    }
  }
}

template <typename V, DType Type>
inline SuperFactors<V> load_header(const std::byte* header) {
  SuperFactors<V> super{V::load_f16(header), V::set(0.0F)};
  if constexpr (Type != DType::kQ6_K) super.min = V::load_f16(header + 32);
  return super;
}

template <typename V, DType Type>
inline BlockFactors<V> load_factors(const std::byte* block, const SuperFactors<V>& super) {
  const std::byte* scales = block + codes_bytes(Type);
  BlockFactors<V> factors;
  if constexpr (Type == DType::kQ4_1 || Type == DType::kQ5_1) {
    factors.scale[0] = V::load_f16(scales);
    factors.offset[0] = V::load_f16(scales + 32);
  } else if constexpr (Type == DType::kQ4_K || Type == DType::kQ5_K) {
    factors.scale[0] = V::mul(super.scale, V::load_u8(scales));
    factors.offset[0] = V::sub(V::set(0.0F), V::mul(super.min, V::load_u8(scales + 16)));
  } else if constexpr (Type == DType::kQ6_K) {
    for (int h = 0; h < 2; ++h) {
      factors.scale[h] = V::mul(super.scale, V::load_i8(scales + 16 * h));
      factors.offset[h] = V::mul(factors.scale[h], V::set(-zero_code(Type)));
    }
  } else {
    factors.scale[0] = V::load_f16(scales);
    factors.offset[0] = V::mul(factors.scale[0], V::set(-zero_code(Type)));
  }
  return factors;
}

// The sum of w a over columns [4 begin, 4 end).
template <typename V, int Begin, int End>
inline typename V::F dot_columns(const typename V::U (&w)[8], const int8_t* limbs) {
  auto high = V::int_zero();
  auto low = V::int_zero();
  for (int j = Begin; j < End; ++j) {
    high = V::dot4(high, w[j], limbs + 4 * j);
    low = V::dot4(low, w[j], limbs + 32 + 4 * j);
  }
  return V::to_float(V::join_limbs(high, low));
}

// acc plus one token's part of one block.
template <typename V, DType Type>
inline typename V::F add_block(typename V::F acc, const typename V::U (&w)[8],
                               const BlockFactors<V>& factors, const int8_t* limbs,
                               const BlockMeta& meta) {
  const auto scale = V::set(meta.scale);
  if constexpr (has_half_scales(Type)) {
    const auto first = V::mul(dot_columns<V, 0, 4>(w, limbs), scale);
    acc = V::fma(factors.scale[0], first, acc);
    acc = V::fma(factors.offset[0], V::set(meta.half_sum[0]), acc);
    const auto second = V::mul(dot_columns<V, 4, 8>(w, limbs), scale);
    acc = V::fma(factors.scale[1], second, acc);
    return V::fma(factors.offset[1], V::set(meta.half_sum[1]), acc);
  } else {
    const auto dot = V::mul(dot_columns<V, 0, 8>(w, limbs), scale);
    acc = V::fma(factors.scale[0], dot, acc);
    return V::fma(factors.offset[0], V::set(meta.sum), acc);
  }
}

template <typename V, DType Type, int Tokens>
void matmul_quantized_tile(const MatmulTile& tile) {
  constexpr PackedShape shape = packed_shape(Type);
  typename V::F acc[Tokens];
  for (auto& lane_sums : acc) lane_sums = V::set(0.0F);
  SuperFactors<V> super{V::set(0.0F), V::set(0.0F)};
  const std::byte* block = tile.weights;
  for (int64_t b = 0; b < tile.blocks; ++b) {
    if constexpr (has_header(Type)) {
      if (b == 0 || (tile.first_block + b) % 8 == 0) {
        super = load_header<V, Type>(block);
        block += shape.header_bytes;
      }
    }
    typename V::U w[8];
    load_packed_codes<V, Type>(block, w);
    const BlockFactors<V> factors = load_factors<V, Type>(block, super);
    block += shape.block_bytes;
    const int8_t* limbs = tile.limbs + b * Tokens * kLimbBytes;
    const BlockMeta* meta = tile.meta + b * Tokens;
    for (int t = 0; t < Tokens; ++t, limbs += kLimbBytes, ++meta) {
      acc[t] = add_block<V, Type>(acc[t], w, factors, limbs, *meta);
    }
  }
  for (int t = 0; t < Tokens; ++t) V::store(tile.out + t * kGroupRows, acc[t]);
}

template <typename V, DType Type>
inline typename V::F load_column(const std::byte* column) {
  if constexpr (Type == DType::kF32) return V::load(reinterpret_cast<const float*>(column));
  if constexpr (Type == DType::kF16) return V::load_f16(column);
  if constexpr (Type == DType::kBF16) return V::load_bf16(column);
}

// Two running sums per token, of even and odd columns, to hide the latency of the additions.
template <typename V, DType Type, int Tokens>
void matmul_float_tile(const MatmulTile& tile) {
  constexpr int64_t column_bytes = packed_shape(Type).block_bytes;
  typename V::F even[Tokens];
  typename V::F odd[Tokens];
  for (int t = 0; t < Tokens; ++t) even[t] = odd[t] = V::set(0.0F);
  const std::byte* column = tile.weights;
  const float* x = tile.inputs;
  int64_t c = 0;
  for (; c + 2 <= tile.blocks; c += 2, column += 2 * column_bytes, x += 2 * Tokens) {
    const auto first = load_column<V, Type>(column);
    const auto second = load_column<V, Type>(column + column_bytes);
    for (int t = 0; t < Tokens; ++t) even[t] = V::fma(first, V::set(x[t]), even[t]);
    for (int t = 0; t < Tokens; ++t) odd[t] = V::fma(second, V::set(x[Tokens + t]), odd[t]);
  }
  if (c < tile.blocks) {
    const auto last = load_column<V, Type>(column);
    for (int t = 0; t < Tokens; ++t) even[t] = V::fma(last, V::set(x[t]), even[t]);
  }
  for (int t = 0; t < Tokens; ++t) V::store(tile.out + t * kGroupRows, V::add(even[t], odd[t]));
}

template <typename V, DType Type>
constexpr std::array<Kernels::MatmulTileFn, kTileWidths> matmul_tiles() {
  if constexpr (Type == DType::kF32 || Type == DType::kF16 || Type == DType::kBF16) {
    return {matmul_float_tile<V, Type, 1>, matmul_float_tile<V, Type, 2>,
            matmul_float_tile<V, Type, 4>, matmul_float_tile<V, Type, 8>};
  } else {
    return {matmul_quantized_tile<V, Type, 1>, matmul_quantized_tile<V, Type, 2>,
            matmul_quantized_tile<V, Type, 4>, matmul_quantized_tile<V, Type, 8>};
  }
}

template <typename V, size_t... Types>
constexpr auto all_matmul_tiles(std::index_sequence<Types...>) {
  return std::array<std::array<Kernels::MatmulTileFn, kTileWidths>, kSupportedTypes>{
      matmul_tiles<V, static_cast<DType>(Types)>()...};
}

// Sixteen-bit activations: a = round(x / scale) with scale = max |x| / 32512, so that the high half
// is at most 127. Blocks that hold NaN or infinity get a NaN scale, which makes every output NaN;
// magnitudes below 1e-30 count as zero.
template <typename V>
void quantize_blocks_16(const float* x, int64_t blocks, int8_t* limbs, BlockMeta* meta,
                        int64_t stride) {
  constexpr float kCodeMax = 32512.0F;
  for (int64_t b = 0; b < blocks; ++b, x += 32, limbs += stride * kLimbBytes, meta += stride) {
    const auto first = V::load(x);
    const auto second = V::load(x + 16);
    const auto zero = V::set(0.0F);
    const bool is_finite = V::reduce_add(V::add(V::mul(first, zero), V::mul(second, zero))) == 0.0F;
    const float extreme = V::reduce_max(V::max(V::abs(first), V::abs(second)));
    if (!is_finite || extreme < 1e-30F) {
      for (int64_t i = 0; i < kLimbBytes; ++i) limbs[i] = 0;
      const float value = is_finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
      *meta = {value, value, {value, value}};
      continue;
    }
    const auto inverse = V::set(kCodeMax / extreme);
    const auto a = V::round_to_int(V::mul(first, inverse));
    const auto b_codes = V::round_to_int(V::mul(second, inverse));
    V::store_limbs(a, limbs, limbs + 32);
    V::store_limbs(b_codes, limbs + 16, limbs + 48);
    const float scale = extreme / kCodeMax;
    const float sums[2] = {static_cast<float>(V::reduce_add(a)),
                           static_cast<float>(V::reduce_add(b_codes))};
    *meta = {scale, scale * (sums[0] + sums[1]), {scale * sums[0], scale * sums[1]}};
  }
}

}  // namespace shoal::tensor

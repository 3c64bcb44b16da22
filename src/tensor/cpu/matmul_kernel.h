// The packed matmul kernels, written once over a vector set V (vec_portable.h says which).
//
// Quantized types: a block's codes w times 16-bit activations a in exact 32-bit integer sums (at
// most 32 * 255 * 32640 < 2^31), then scaled in float32:
//   y[row] += d[row] * (scale * sum w a) + offset[row] * (scale * sum a)
// where offset is the type's minimum, or -zero * d for a type whose zero is the code `zero`.
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
#include "tensor/quant/code_tables.h"

namespace shoal::tensor {

// What the columns of one block of 16 rows are multiplied with.
template <typename V>
struct BlockFactors {
  typename V::F scale[2];  // of columns 0-15 and 16-31; [1] only where has_half_scales
  typename V::F offset[2];
};

// The header of a super-block.
template <typename V>
struct SuperFactors {
  typename V::F scale;
  typename V::F min;
};

constexpr bool has_half_scales(DType type) {
  const ScaleLayout scales = packed_format(type).scales;
  return scales == ScaleLayout::kTwoSigned || scales == ScaleLayout::kTwoCodes;
}
// Codes above 127, which a V with signed codes takes shifted by V::kWideShift.
constexpr bool has_wide_codes(DType type) {
  return type == DType::kQ8_0 || type == DType::kIQ4_NL || type == DType::kIQ4_XS;
}
template <typename V>
constexpr int code_shift(DType type) {
  return has_wide_codes(type) ? V::kWideShift : 0;
}
template <typename V>
constexpr float zero_code(DType type) {
  return static_cast<float>(packed_format(type).zero_code - code_shift<V>(type));
}

// A type's table as the codes that V multiplies with.
template <typename V, DType Type>
struct ShiftedTable {
  static constexpr std::array<uint8_t, 16> make() {
    std::array<uint8_t, 16> out{};
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<uint8_t>(code_table(Type)[i] + packed_format(Type).zero_code -
                                    code_shift<V>(Type));
    }
    return out;
  }
  static constexpr std::array<uint8_t, 16> kCodes = make();
};

// w plus the two bits of each column from `pairs` [2][64 bytes], moved up by Shift bits.
template <typename V, int Shift>
inline void add_pairs(const std::byte* pairs, typename V::U (&w)[8]) {
  for (int h = 0; h < 2; ++h) {
    const auto bits = V::load_bytes(pairs + 64 * h);
    w[4 * h] = V::template add_pair<0, Shift>(w[4 * h], bits);
    w[4 * h + 1] = V::template add_pair<1, Shift>(w[4 * h + 1], bits);
    w[4 * h + 2] = V::template add_pair<2, Shift>(w[4 * h + 2], bits);
    w[4 * h + 3] = V::template add_pair<3, Shift>(w[4 * h + 3], bits);
  }
}

template <typename V>
inline void load_nibbles(const std::byte* block, typename V::U (&w)[8]) {
  for (int k = 0; k < 4; ++k) {
    const auto nibbles = V::load_bytes(block + 64 * k);
    w[k] = V::low_nibbles(nibbles);
    w[k + 4] = V::high_nibbles(nibbles);
  }
}

template <typename V, DType Type>
inline void load_packed_codes(const std::byte* block, typename V::U (&w)[8]) {
  constexpr CodeLayout codes = packed_format(Type).codes;
  if constexpr (codes == CodeLayout::kBytes) {
    for (int j = 0; j < 8; ++j) w[j] = V::load_wide_codes(block + 64 * j);
  } else if constexpr (codes == CodeLayout::kPairs || codes == CodeLayout::kPairsBit) {
    for (int j = 0; j < 8; ++j) w[j] = V::zero_bytes();
    add_pairs<V, 0>(block, w);
  } else {
    load_nibbles<V>(block, w);
  }
  if constexpr (codes == CodeLayout::kNibblesBit) {
    for (int j = 0; j < 8; ++j) w[j] = V::template add_bit<16>(w[j], block + 256 + 8 * j);
  } else if constexpr (codes == CodeLayout::kPairsBit) {
    for (int j = 0; j < 8; ++j) w[j] = V::template add_bit<4>(w[j], block + 128 + 8 * j);
  } else if constexpr (codes == CodeLayout::kNibblesPairs) {
    add_pairs<V, 4>(block + 256, w);
  } else if constexpr (codes == CodeLayout::kTable) {
    const auto table = V::load_table(ShiftedTable<V, Type>::kCodes.data());
    for (int j = 0; j < 8; ++j) w[j] = V::lookup(table, w[j]);
  }
}

template <typename V, DType Type>
inline SuperFactors<V> load_header(const std::byte* header) {
  SuperFactors<V> super{V::load_f16(header), V::set(0.0F)};
  if constexpr (packed_format(Type).header_halves == 2) super.min = V::load_f16(header + 32);
  return super;
}

template <typename V, DType Type>
inline BlockFactors<V> load_factors(const std::byte* block, const SuperFactors<V>& super) {
  constexpr PackedFormat format = packed_format(Type);
  const std::byte* scales = block + codes_bytes(format.codes);
  const auto minus_zero = V::set(-zero_code<V>(Type));
  const auto negative = [](typename V::F a) { return V::sub(V::set(0.0F), a); };
  BlockFactors<V> factors;
  if constexpr (format.scales == ScaleLayout::kHalfAndMin) {
    factors.scale[0] = V::load_f16(scales);
    factors.offset[0] = V::load_f16(scales + 32);
  } else if constexpr (format.scales == ScaleLayout::kCodes) {
    factors.scale[0] = V::mul(super.scale, V::load_u8(scales));
    factors.offset[0] = negative(V::mul(super.min, V::load_u8(scales + 16)));
  } else if constexpr (format.scales == ScaleLayout::kTwoCodes) {
    for (int h = 0; h < 2; ++h) {
      factors.scale[h] = V::mul(super.scale, V::load_low4(scales + 16 * h));
      factors.offset[h] = negative(V::mul(super.min, V::load_high4(scales + 16 * h)));
    }
  } else if constexpr (format.scales == ScaleLayout::kTwoSigned) {
    for (int h = 0; h < 2; ++h) {
      factors.scale[h] = V::mul(super.scale, V::load_i8(scales + 16 * h));
      factors.offset[h] = V::mul(factors.scale[h], minus_zero);
    }
  } else {
    if constexpr (format.scales == ScaleLayout::kSigned) {
      factors.scale[0] = V::mul(super.scale, V::load_i8(scales));
    } else if constexpr (format.scales == ScaleLayout::kPowerOfTwo) {
      factors.scale[0] = V::mul(V::load_power(scales), V::set(0.5F));
    } else {
      factors.scale[0] = V::load_f16(scales);
    }
    factors.offset[0] = V::mul(factors.scale[0], minus_zero);
  }
  return factors;
}

// Reads a group's blocks one after another.
template <typename V, DType Type>
class BlockReader {
 public:
  BlockReader(const std::byte* weights, int64_t first_block)
      : next_(weights), block_(first_block) {}

  inline BlockFactors<V> read(typename V::U (&w)[8]) {
    constexpr PackedShape shape = packed_shape(Type);
    if constexpr (shape.header_bytes > 0) {
      if (is_first_ || block_ % 8 == 0) {
        super_ = load_header<V, Type>(next_);
        next_ += shape.header_bytes;
      }
      is_first_ = false;
      ++block_;
    }
    load_packed_codes<V, Type>(next_, w);
    const BlockFactors<V> factors = load_factors<V, Type>(next_, super_);
    next_ += shape.block_bytes;
    return factors;
  }

 private:
  const std::byte* next_;
  int64_t block_;
  bool is_first_ = true;
  SuperFactors<V> super_{V::set(0.0F), V::set(0.0F)};
};

// acc plus one token's part of one block, whose sums of w a are `dots` (of each half where the type
// has half scales).
template <typename V, DType Type>
inline typename V::F add_block(typename V::F acc, const typename V::F (&dots)[2],
                               const BlockFactors<V>& factors, const BlockMeta& meta) {
  const auto scale = V::set(meta.scale);
  acc = V::fma(factors.scale[0], V::mul(dots[0], scale), acc);
  if constexpr (has_half_scales(Type)) {
    acc = V::fma(factors.offset[0], V::set(meta.half_sum[0]), acc);
    acc = V::fma(factors.scale[1], V::mul(dots[1], scale), acc);
    return V::fma(factors.offset[1], V::set(meta.half_sum[1]), acc);
  } else {
    return V::fma(factors.offset[0], V::set(meta.sum), acc);
  }
}

template <typename V, DType Type>
inline typename V::F multiply_block(typename V::F acc, const typename V::Codes& codes,
                                    const BlockFactors<V>& factors, const int8_t* inputs,
                                    const BlockMeta& meta) {
  if constexpr (has_half_scales(Type)) {
    const typename V::F dots[2] = {V::template dot<0, 4>(codes, inputs),
                                   V::template dot<4, 8>(codes, inputs)};
    return add_block<V, Type>(acc, dots, factors, meta);
  } else {
    const auto dot = V::template dot<0, 8>(codes, inputs);
    return add_block<V, Type>(acc, {dot, dot}, factors, meta);
  }
}

template <typename V, DType Type, int Tokens>
void matmul_quantized_tile(const MatmulTile& tile) {
  typename V::F acc[Tokens];
  for (auto& lane_sums : acc) lane_sums = V::set(0.0F);
  BlockReader<V, Type> reader(tile.weights, tile.first_block);
  const int8_t* inputs = tile.blocks16;
  const BlockMeta* meta = tile.meta;
  for (int64_t b = 0; b < tile.blocks; ++b) {
    typename V::U w[8];
    const BlockFactors<V> factors = reader.read(w);
    const typename V::Codes codes = V::prepare(w);
    for (int t = 0; t < Tokens; ++t, inputs += kInputBytes, ++meta) {
      acc[t] = multiply_block<V, Type>(acc[t], codes, factors, inputs, *meta);
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

// Tokens [First, First + Count) of a tile of Tokens. Each has V::kFloatChains running sums, of
// every such column, to hide the latency of the additions.
template <typename V, DType Type, int Tokens, int First, int Count>
inline void multiply_columns(const MatmulTile& tile) {
  constexpr int64_t column_bytes = packed_shape(Type).block_bytes;
  constexpr int kChains = V::kFloatChains;
  typename V::F sums[kChains][Count];
  for (auto& chain : sums) {
    for (auto& lanes : chain) lanes = V::set(0.0F);
  }
  const std::byte* column = tile.weights;
  const float* x = tile.inputs + First;
  int64_t c = 0;
  for (; c + kChains <= tile.blocks; c += kChains) {
    for (int chain = 0; chain < kChains; ++chain, column += column_bytes, x += Tokens) {
      const auto weights = load_column<V, Type>(column);
      for (int t = 0; t < Count; ++t) {
        sums[chain][t] = V::fma(weights, V::set(x[t]), sums[chain][t]);
      }
    }
  }
  for (; c < tile.blocks; ++c, column += column_bytes, x += Tokens) {
    const auto weights = load_column<V, Type>(column);
    for (int t = 0; t < Count; ++t) sums[0][t] = V::fma(weights, V::set(x[t]), sums[0][t]);
  }
  for (int t = 0; t < Count; ++t) {
    auto total = sums[0][t];
    for (int chain = 1; chain < kChains; ++chain) total = V::add(total, sums[chain][t]);
    V::store(tile.out + (First + t) * kGroupRows, total);
  }
}

template <typename V, DType Type, int Tokens>
void matmul_float_tile(const MatmulTile& tile) {
  if constexpr (Tokens <= V::kFloatTokens) {
    multiply_columns<V, Type, Tokens, 0, Tokens>(tile);
  } else {
    static_assert(Tokens == 2 * V::kFloatTokens);
    multiply_columns<V, Type, Tokens, 0, Tokens / 2>(tile);
    multiply_columns<V, Type, Tokens, Tokens / 2, Tokens / 2>(tile);
  }
}

template <typename V, DType Type>
constexpr std::array<Kernels::MatmulTileFn, kTileWidths> matmul_tiles() {
  if constexpr (is_float_type(Type)) {
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
void quantize_blocks_16(const float* x, int64_t blocks, int8_t* inputs, BlockMeta* meta,
                        int64_t stride) {
  constexpr float kCodeMax = 32512.0F;
  for (int64_t b = 0; b < blocks; ++b, x += 32, inputs += stride * kInputBytes, meta += stride) {
    const auto first = V::load(x);
    const auto second = V::load(x + 16);
    const auto zero = V::set(0.0F);
    const bool is_finite = V::reduce_add(V::add(V::mul(first, zero), V::mul(second, zero))) == 0.0F;
    const float extreme = V::reduce_max(V::max(V::abs(first), V::abs(second)));
    if (!is_finite || extreme < 1e-30F) {
      for (int64_t i = 0; i < kInputBytes; ++i) inputs[i] = 0;
      const float value = is_finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
      *meta = {value, value, {value, value}};
      continue;
    }
    const auto inverse = V::set(kCodeMax / extreme);
    const auto a = V::round_to_int(V::mul(first, inverse));
    const auto b_codes = V::round_to_int(V::mul(second, inverse));
    V::store_inputs(a, b_codes, inputs);
    const float scale = extreme / kCodeMax;
    const float sums[2] = {static_cast<float>(V::reduce_add(a)),
                           static_cast<float>(V::reduce_add(b_codes))};
    *meta = {scale, scale * (sums[0] + sums[1]), {scale * sums[0], scale * sums[1]}};
  }
}

}  // namespace shoal::tensor

// The packed matmul kernels, written once over a vector set V (vec_portable.h says which).
//
// Quantized types: a block's codes w times 8-bit inputs a in exact 32-bit integer sums, then scaled
// in float32, all tokens of a tile after one another:
//   y[row] += scale * (d[row] * sum w a), and offset[row] * sum of x of a type with a minimum
// where d and offset are the weight block's and scale the input block's. Blocks with second bytes
// add the same of those. Each lane is one row, so there is no sum across lanes; a token's sums run
// in the same order in tiles of every width. Thread rule: pure functions.
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
  typename V::F scale[2];   // of columns 0-15 and 16-31; [1] only where has_half_scales
  typename V::F offset[2];  // only where the type has a minimum
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

// A type's table as biased codes.
template <DType Type>
struct BiasedTable {
  static constexpr std::array<uint8_t, 16> make() {
    std::array<uint8_t, 16> out{};
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = static_cast<uint8_t>(code_table(Type)[i] + 128);
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

// The nibbles, moved to bit 0 or bit 4.
template <typename V, int Shift>
inline void load_nibbles(const std::byte* block, typename V::U (&w)[8]) {
  static_assert(Shift == 0 || Shift == 4);
  for (int k = 0; k < 4; ++k) {
    const auto nibbles = V::load_bytes(block + 64 * k);
    if constexpr (Shift == 0) {
      w[k] = V::low_nibbles(nibbles);
      w[k + 4] = V::high_nibbles(nibbles);
    } else {
      w[k] = V::low_nibbles_up(nibbles);
      w[k + 4] = V::high_nibbles_kept(nibbles);
    }
  }
}

template <typename V, DType Type>
inline void load_packed_codes(const std::byte* block, typename V::U (&w)[8]) {
  constexpr CodeLayout codes = packed_format(Type).codes;
  constexpr CodePlaces places = code_places(Type);
  if constexpr (codes == CodeLayout::kBytes) {
    for (int j = 0; j < 8; ++j) w[j] = V::load_bytes(block + 64 * j);
  } else if constexpr (codes == CodeLayout::kTable) {
    load_nibbles<V, 0>(block, w);
    const auto table = V::load_table(BiasedTable<Type>::kCodes.data());
    for (int j = 0; j < 8; ++j) w[j] = V::lookup(table, w[j]);
  } else if constexpr (codes == CodeLayout::kPairs || codes == CodeLayout::kPairsBit) {
    for (int j = 0; j < 8; ++j) w[j] = V::zero_bytes();
    add_pairs<V, places.main_shift>(block, w);
  } else {
    load_nibbles<V, places.main_shift>(block, w);
  }
  constexpr int rest = 1 << places.rest_shift;
  if constexpr (codes == CodeLayout::kNibblesBit) {
    for (int j = 0; j < 8; ++j) w[j] = V::template add_bit<rest>(w[j], block + 256 + 8 * j);
  } else if constexpr (codes == CodeLayout::kPairsBit) {
    for (int j = 0; j < 8; ++j) w[j] = V::template add_bit<rest>(w[j], block + 128 + 8 * j);
  } else if constexpr (codes == CodeLayout::kNibblesPairs) {
    add_pairs<V, places.rest_shift>(block + 256, w);
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
    }
  } else if constexpr (format.scales == ScaleLayout::kSigned) {
    factors.scale[0] = V::mul(super.scale, V::load_i8(scales));
  } else if constexpr (format.scales == ScaleLayout::kPowerOfTwo) {
    factors.scale[0] = V::mul(V::load_power(scales), V::set(0.5F));
  } else {
    factors.scale[0] = V::load_f16(scales);
  }
  return factors;
}

// What memory gives while a few blocks are computed for several tokens. For one token the
// processor's own prefetching is faster: it reads on anyway, and these requests would be in its
// way.
inline constexpr int64_t kPrefetchBytes = 4096;
inline constexpr int kPrefetchTokens = 4;

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

  // Asks for a block's bytes ahead of their use.
  inline void prefetch() const {
    for (int64_t line = 0; line < packed_shape(Type).block_bytes; line += 64) {
      __builtin_prefetch(next_ + kPrefetchBytes + line);
    }
  }

 private:
  const std::byte* next_;
  int64_t block_;
  bool is_first_ = true;
  SuperFactors<V> super_{V::set(0.0F), V::set(0.0F)};
};

// The sums of codes times bytes, one per scale of a block.
template <typename V>
struct BlockDots {
  typename V::F sum[2];  // [1] only where has_half_scales
};

// d[row] * sum w a.
template <typename V, DType Type>
[[gnu::always_inline]] inline typename V::F scale_dots(const BlockDots<V>& dots,
                                                       const BlockFactors<V>& factors) {
  const auto first = V::mul(dots.sum[0], factors.scale[0]);
  if constexpr (has_half_scales(Type)) return V::fma(dots.sum[1], factors.scale[1], first);
  return first;
}

// acc plus one token's part of one block, its second bytes apart.
template <typename V, DType Type>
[[gnu::always_inline]] inline typename V::F add_block(typename V::F acc, const BlockDots<V>& dots,
                                                      const BlockFactors<V>& factors,
                                                      const BlockMeta& meta) {
  acc = V::fma(scale_dots<V, Type>(dots, factors), V::set(meta.scale), acc);
  if constexpr (is_biased(Type)) return acc;
  if constexpr (has_half_scales(Type)) {
    acc = V::fma(factors.offset[0], V::set(meta.half_sum[0]), acc);
    return V::fma(factors.offset[1], V::set(meta.half_sum[1]), acc);
  } else {
    return V::fma(factors.offset[0], V::set(meta.sum), acc);
  }
}

template <typename V, DType Type>
[[gnu::always_inline]] inline BlockDots<V> dot_block(
    const typename V::template Codes<is_biased(Type)>& codes, const int8_t* inputs,
    const BiasSums& bias) {
  constexpr bool biased = is_biased(Type);
  if constexpr (has_half_scales(Type)) {
    return {V::template dot<biased, Part::kFirstHalf>(codes, inputs, bias),
            V::template dot<biased, Part::kSecondHalf>(codes, inputs, bias)};
  } else {
    return {V::template dot<biased, Part::kWhole>(codes, inputs, bias), V::set(0.0F)};
  }
}

// acc plus what a block's second bytes add.
template <typename V, DType Type>
[[gnu::always_inline]] inline typename V::F add_second(
    typename V::F acc, const typename V::template Codes<is_biased(Type)>& codes,
    const BlockFactors<V>& factors, const BlockInputs& block) {
  const auto dots = dot_block<V, Type>(codes, block.second->inputs, block.second->bias);
  const auto scale = V::set(block.meta->scale * (1.0F / kSecondSteps));
  return V::fma(scale_dots<V, Type>(dots, factors), scale, acc);
}

// Tiles of tokens against the blocks of a group that a reader gives one after another.
template <typename V, DType Type, int Tokens, int Tiles>
class TileSums {
 public:
  // Tile t's blocks begin at inputs.at(t * tile_blocks).
  TileSums(const BlockInputs& inputs, int64_t tile_blocks)
      : inputs_(inputs), tile_blocks_(tile_blocks) {
    for (auto& lanes : acc_) lanes = V::set(0.0F);
  }

  // Block number `block` of the group, which is the reader's next.
  [[gnu::always_inline]] inline void add(BlockReader<V, Type>& reader, int64_t block) {
    if constexpr (Tokens * Tiles >= kPrefetchTokens) reader.prefetch();
    typename V::U w[8];
    const BlockFactors<V> factors = reader.read(w);
    const auto codes = V::template prepare<is_biased(Type)>(w);
    add_tiles(codes, factors, block, std::make_integer_sequence<int, Tiles>());
  }

  typename V::F sum(int token) const {
    if constexpr (output_factor(Type) == 1.0F) return acc_[token];
    return V::mul(acc_[token], V::set(output_factor(Type)));
  }

 private:
  using Codes = typename V::template Codes<is_biased(Type)>;
  static constexpr bool kByTwo = V::kDotsTwoTokens && Tokens % 2 == 0;
  static constexpr int kTokenSteps = kByTwo ? Tokens / 2 : Tokens;

  // Tiles and tokens are written out, so that the sums stay in registers.
  template <int... Numbers>
  [[gnu::always_inline]] inline void add_tiles(const Codes& codes, const BlockFactors<V>& factors,
                                               int64_t block,
                                               std::integer_sequence<int, Numbers...>) {
    (add_tile(codes, factors, inputs_.at(Numbers * tile_blocks_ + block * Tokens),
              acc_ + Numbers * Tokens, std::make_integer_sequence<int, kTokenSteps>()),
     ...);
  }

  template <int... Steps>
  [[gnu::always_inline]] static inline void add_tile(const Codes& codes,
                                                     const BlockFactors<V>& factors,
                                                     const BlockInputs& inputs, typename V::F* acc,
                                                     std::integer_sequence<int, Steps...>) {
    if constexpr (kByTwo) {
      (add_two(codes, factors, inputs.at(2 * Steps), acc + 2 * Steps), ...);
    } else {
      (add_one(codes, factors, inputs.at(Steps), acc[Steps]), ...);
    }
  }

  [[gnu::always_inline]] static inline void add_one(const Codes& codes,
                                                    const BlockFactors<V>& factors,
                                                    const BlockInputs& token, typename V::F& acc) {
    add_token(codes, factors, token, dot_block<V, Type>(codes, token.bytes, token.meta->bias), acc);
  }

  static inline void add_two(const Codes& codes, const BlockFactors<V>& factors,
                             const BlockInputs& tokens, typename V::F* acc) {
    BlockDots<V> dots[2];
    V::template dot_two<has_half_scales(Type)>(codes, tokens.bytes, dots);
    for (int i = 0; i < 2; ++i) add_token(codes, factors, tokens.at(i), dots[i], acc[i]);
  }

  [[gnu::always_inline]] static inline void add_token(const Codes& codes,
                                                      const BlockFactors<V>& factors,
                                                      const BlockInputs& token,
                                                      const BlockDots<V>& dots,
                                                      typename V::F& acc) {
    acc = add_block<V, Type>(acc, dots, factors, *token.meta);
    if (token.meta->has_second != 0) [[unlikely]] {
      acc = add_second<V, Type>(acc, codes, factors, token);
    }
  }

  const BlockInputs inputs_;
  const int64_t tile_blocks_;
  typename V::F acc_[Tokens * Tiles];
};

template <typename V, DType Type, int Tokens>
void matmul_quantized_tile(const MatmulTile& tile) {
  BlockReader<V, Type> reader(tile.weights, tile.first_block);
  TileSums<V, Type, Tokens, 1> sums(tile.inputs, 0);
  for (int64_t b = 0; b < tile.blocks; ++b) sums.add(reader, b);
  for (int t = 0; t < Tokens; ++t) V::store(tile.out + t * kGroupRows, sums.sum(t));
}

// `Tiles` neighbouring tiles of a panel, from number `first` on.
template <typename V, DType Type, int Tiles>
inline void multiply_wide(const MatmulPanel& panel, int64_t first) {
  BlockReader<V, Type> reader(panel.weights, panel.first_block);
  const int64_t tile_blocks = kTileTokens * panel.blocks;
  TileSums<V, Type, kTileTokens, Tiles> sums(panel.inputs.at(first * tile_blocks), tile_blocks);
  for (int64_t b = 0; b < panel.blocks; ++b) sums.add(reader, b);
  for (int t = 0; t < Tiles * kTileTokens; ++t) {
    V::store_part(panel.out + (first * kTileTokens + t) * panel.out_stride, sums.sum(t),
                  panel.rows);
  }
}

// Two tiles at once: the codes of a block are unpacked for 16 tokens. For V with 32 registers.
template <typename V, DType Type>
void matmul_wide_panel(const MatmulPanel& panel) {
  int64_t tile = 0;
  for (; tile + 2 <= panel.tiles; tile += 2) multiply_wide<V, Type, 2>(panel, tile);
  if (tile < panel.tiles) multiply_wide<V, Type, 1>(panel, tile);
}

template <typename V, DType Type>
constexpr Kernels::MatmulPanelFn wide_panel_of() {
  if constexpr (is_float_type(Type) || !V::kHasWideTiles) {
    return nullptr;
  } else {
    return matmul_wide_panel<V, Type>;
  }
}

template <typename V, size_t... Types>
constexpr auto all_wide_panels(std::index_sequence<Types...>) {
  return std::array<Kernels::MatmulPanelFn, kSupportedTypes>{
      wide_panel_of<V, static_cast<DType>(Types)>()...};
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
  const float* x = tile.floats + First;
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

// A block whose largest value has more than 27/32 of its energy is dominated by it.
inline constexpr float kDominantShare = 27.0F / 32.0F;

template <typename V>
inline BiasSums bias_of(typename V::I first, typename V::I second) {
  const int32_t sums[2] = {V::reduce_add(first), V::reduce_add(second)};
  return {{-128 * (sums[0] + sums[1]), -128 * sums[0], -128 * sums[1]}};
}

// Eight-bit inputs: a = round(x / scale) with scale = max |x| / 127; where one value dominates its
// block, 254 steps between two of these hold what is left. Blocks that hold NaN or infinity get a
// NaN scale, which makes every output NaN; magnitudes below 1e-30 count as zero.
template <typename V>
void quantize_blocks_8(const float* x, int64_t blocks, const BlockOutputs& outputs,
                       int64_t stride) {
  constexpr float kCodeMax = 127.0F;
  BlockOutputs out = outputs;
  for (int64_t b = 0; b < blocks; ++b, x += 32, out = out.at(stride)) {
    const auto first = V::load(x);
    const auto second = V::load(x + 16);
    const auto zero = V::set(0.0F);
    const bool is_finite = V::reduce_add(V::add(V::mul(first, zero), V::mul(second, zero))) == 0.0F;
    const float extreme = V::reduce_max(V::max(V::abs(first), V::abs(second)));
    if (!is_finite || extreme < 1e-30F) {
      for (int64_t i = 0; i < kInputBytes; ++i) out.bytes[i] = 0;
      const float value = is_finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
      *out.meta = {value, 0, value, {value, value}, {}};
      continue;
    }
    const auto inverse = V::set(kCodeMax / extreme);
    const auto u = V::mul(first, inverse);
    const auto v = V::mul(second, inverse);
    const auto u_codes = V::round_to_int(u);
    const auto v_codes = V::round_to_int(v);
    V::store_i8(out.bytes, u_codes);
    V::store_i8(out.bytes + 16, v_codes);
    const float scale = extreme / kCodeMax;
    const BiasSums bias = bias_of<V>(u_codes, v_codes);
    float sums[2] = {static_cast<float>(bias.by_part[1]), static_cast<float>(bias.by_part[2])};
    const float energy = V::reduce_add(V::fma(u, u, V::mul(v, v)));
    const bool is_dominated = kCodeMax * kCodeMax > kDominantShare * energy;
    if (is_dominated) {
      const auto steps = V::set(kSecondSteps);
      const auto u_rest = V::round_to_int(V::mul(V::sub(u, V::round(u)), steps));
      const auto v_rest = V::round_to_int(V::mul(V::sub(v, V::round(v)), steps));
      V::store_i8(out.second->inputs, u_rest);
      V::store_i8(out.second->inputs + 16, v_rest);
      out.second->bias = bias_of<V>(u_rest, v_rest);
      for (int h = 0; h < 2; ++h) {
        sums[h] += static_cast<float>(out.second->bias.by_part[1 + h]) * (1.0F / kSecondSteps);
      }
    }
    const float unit = scale * (-1.0F / 128.0F);
    *out.meta = {scale,
                 is_dominated ? 1 : 0,
                 unit * (sums[0] + sums[1]),
                 {unit * sums[0], unit * sums[1]},
                 bias};
  }
}

}  // namespace shoal::tensor

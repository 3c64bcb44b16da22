// The prefill kernels of processors with a matrix unit, written once over its tiles and a vector
// set V that multiplies biased codes as they are (VecPortable, VecAvx512).
//
// A panel is one group of 16 rows times many tiles of 8 tokens. The group's codes and factors are
// unpacked once into scratch. Then, block by block of 32 columns, one tile product gives the exact
// integer sums of 16 rows with the inputs of 8 tokens: both operands are in order as they lie.
// Scaling and second bytes are those of the vector kernels, so the result has the same bits.
//
// Tiles (tile_scalar.h, x86/tile_amx.h) is made for products over 32 or 16 columns:
//   multiply<Slot>(inputs, codes, sums): sums [8][16] int32 = inputs [8, columns] int8, rows 32
//   bytes apart, times codes [columns / 4][16][4]. Slots 0 to 3 may be under way together.
// Thread rule: pure functions; scratch belongs to the caller.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

#include "tensor/cpu/kernels.h"
#include "tensor/cpu/matmul_kernel.h"
#include "tensor/cpu/packed_kernels.h"

namespace shoal::tensor {

// Unpacked blocks of a group in the scratch of a panel.
struct PanelBlock {
  alignas(64) std::byte codes[512];  // [8][16][4]
  alignas(64) float scale[2][16];
  alignas(64) float offset[2][16];
};
static_assert(sizeof(PanelBlock) == kPanelBlockBytes);

template <typename V, DType Type>
inline void unpack_panel(const MatmulPanel& panel, PanelBlock* blocks) {
  BlockReader<V, Type> reader(panel.weights, panel.first_block);
  for (int64_t b = 0; b < panel.blocks; ++b) {
    typename V::U w[8];
    const BlockFactors<V> factors = reader.read(w);
    for (int j = 0; j < 8; ++j) V::store_bytes(blocks[b].codes + 64 * j, w[j]);
    for (int h = 0; h < (has_half_scales(Type) ? 2 : 1); ++h) {
      V::store(blocks[b].scale[h], factors.scale[h]);
      if constexpr (!is_biased(Type)) V::store(blocks[b].offset[h], factors.offset[h]);
    }
  }
}

// One tile of 8 tokens of a panel.
template <typename Tiles, typename V, DType Type>
class PanelTile {
 public:
  static constexpr int kHalves = has_half_scales(Type) ? 2 : 1;
  static constexpr int kBlocksAtOnce = 4 / kHalves;  // four tile products at once

  PanelTile(Tiles& tiles, const PanelBlock* blocks, const BlockInputs& inputs)
      : tiles_(tiles), blocks_(blocks), inputs_(inputs) {
    for (auto& lanes : acc_) lanes = V::set(0.0F);
  }

  void run(int64_t blocks) {
    int64_t b = 0;
    for (; b + kBlocksAtOnce <= blocks; b += kBlocksAtOnce) {
      multiply_blocks(b, std::make_integer_sequence<int, kBlocksAtOnce>());
      for (int i = 0; i < kBlocksAtOnce; ++i) add(b + i, i);
    }
    for (; b < blocks; ++b) {
      multiply<0>(b);
      add(b, 0);
    }
  }

  typename V::F sum(int token) const { return V::mul(acc_[token], V::set(output_factor(Type))); }

 private:
  template <int... Places>
  void multiply_blocks(int64_t b, std::integer_sequence<int, Places...>) {
    (multiply<Places>(b + Places), ...);
  }

  template <int Place>
  void multiply(int64_t b) {
    const int8_t* inputs = inputs_.bytes + b * kTileTokens * kInputBytes;
    const std::byte* codes = blocks_[b].codes;
    tiles_.template multiply<Place * kHalves>(inputs, codes, sums_[Place * kHalves]);
    if constexpr (kHalves == 2) {
      tiles_.template multiply<Place * kHalves + 1>(inputs + 16, codes + 256,
                                                    sums_[Place * kHalves + 1]);
    }
  }

  void add(int64_t b, int place) {
    const PanelBlock& block = blocks_[b];
    BlockFactors<V> factors;
    for (int h = 0; h < kHalves; ++h) {
      factors.scale[h] = V::load(block.scale[h]);
      if constexpr (!is_biased(Type)) factors.offset[h] = V::load(block.offset[h]);
    }
    for (int t = 0; t < kTileTokens; ++t) {
      const BlockInputs token = inputs_.at(b * kTileTokens + t);
      BlockDots<V> dots;
      for (int h = 0; h < kHalves; ++h) {
        const int32_t bias = token.meta->bias.by_part[kHalves == 2 ? 1 + h : 0];
        dots.sum[h] =
            V::to_floats(sums_[place * kHalves + h] + kGroupRows * t, is_biased(Type) ? bias : 0);
      }
      acc_[t] = add_block<V, Type>(acc_[t], dots, factors, *token.meta);
      if (token.meta->has_second != 0) [[unlikely]] {
        typename V::U w[8];
        for (int j = 0; j < 8; ++j) w[j] = V::load_bytes(block.codes + 64 * j);
        acc_[t] =
            add_second<V, Type>(acc_[t], V::template prepare<is_biased(Type)>(w), factors, token);
      }
    }
  }

  Tiles& tiles_;
  const PanelBlock* blocks_;
  BlockInputs inputs_;
  typename V::F acc_[kTileTokens];
  alignas(64) int32_t sums_[4][kTileTokens * kGroupRows];
};

template <typename Tiles, typename V, DType Type>
void matmul_panel(const MatmulPanel& panel) {
  auto* blocks = reinterpret_cast<PanelBlock*>(panel.scratch);
  unpack_panel<V, Type>(panel, blocks);
  Tiles tiles(has_half_scales(Type) ? 16 : 32);
  for (int64_t tile = 0; tile < panel.tiles; ++tile) {
    const int64_t first = tile * kTileTokens * panel.blocks;
    PanelTile<Tiles, V, Type> sums(tiles, blocks, panel.inputs.at(first));
    sums.run(panel.blocks);
    for (int t = 0; t < kTileTokens; ++t) {
      V::store_part(panel.out + (tile * kTileTokens + t) * panel.out_stride, sums.sum(t),
                    panel.rows);
    }
  }
}

template <typename Tiles, typename V, DType Type>
constexpr Kernels::MatmulPanelFn matmul_panel_of() {
  if constexpr (is_float_type(Type)) {
    return nullptr;
  } else {
    return matmul_panel<Tiles, V, Type>;
  }
}

template <typename Tiles, typename V, size_t... Types>
constexpr auto all_matmul_panels(std::index_sequence<Types...>) {
  return std::array<Kernels::MatmulPanelFn, kSupportedTypes>{
      matmul_panel_of<Tiles, V, static_cast<DType>(Types)>()...};
}

// The table of a path with tiles.
template <typename Tiles, typename V>
constexpr Kernels panel_kernels(KernelPath path) {
  Kernels kernels = packed_kernels<V>(path);
  kernels.matmul_panel = all_matmul_panels<Tiles, V>(std::make_index_sequence<kSupportedTypes>());
  return kernels;
}

}  // namespace shoal::tensor

#include "tensor/matmul/group_product.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "tensor/cpu/kernels.h"

namespace shoal::tensor {
namespace {

// Fewer tiles are not worth the unpacking of a panel.
constexpr int64_t kPanelTilesMin = 2;

// The inputs of a tile that begins at `token`.
void point_at(const InputTiles& x, int64_t token, MatmulTile& tile) {
  if (x.kind == InputFormat::Kind::kByteBlocks) {
    tile.inputs = x.blocks.at(token * x.items);
  } else {
    tile.floats = x.floats + token * x.items;
  }
}

// As many whole tiles of 8 tokens as there are; returns the tokens done.
int64_t multiply_panel(const Worker& me, const GroupProduct& product, Range tokens) {
  const auto& [w, group, x, y] = product;
  const auto multiply = me.kernels().matmul_panel[static_cast<size_t>(w.type())];
  const int64_t tiles = tokens.size() / kTileTokens;
  if (multiply == nullptr || tiles < kPanelTilesMin) return 0;
  CHECK(me.scratch().size() >= panel_scratch_bytes(w.path(), w.cols()));
  MatmulPanel panel;
  panel.weights = w.data().data() + group * w.group_bytes();
  panel.first_block = w.first_block();
  panel.blocks = w.blocks();
  panel.inputs = x.blocks.at(tokens.begin * x.items);
  panel.tiles = tiles;
  panel.out = y.row(tokens.begin);
  panel.out_stride = y.stride;
  panel.rows = std::min(kGroupRows, y.cols);
  panel.scratch = me.scratch().data();
  multiply(panel);
  return tiles * kTileTokens;
}

}  // namespace

InputTiles InputTiles::of(const Activations& x) {
  InputTiles tiles;
  tiles.kind = x.format().kind;
  tiles.tokens = x.tokens();
  if (tiles.kind == InputFormat::Kind::kByteBlocks) {
    tiles.items = blocks_of(x.format());
    tiles.blocks = byte_blocks(x.data(), x.tokens(), tiles.items).inputs();
  } else {
    tiles.items = x.format().cols;
    tiles.floats = reinterpret_cast<const float*>(x.data());
  }
  return tiles;
}

int64_t InputTiles::token_bytes() const {
  return items * static_cast<int64_t>(kind == InputFormat::Kind::kByteBlocks
                                          ? kInputBytes + sizeof(BlockMeta)
                                          : sizeof(float));
}

void multiply_group(const Worker& me, const GroupProduct& product, Range tokens) {
  const auto& [w, group, x, y] = product;
  alignas(64) std::array<float, kTileTokens * kGroupRows> sums;
  MatmulTile tile;
  tile.weights = w.data().data() + group * w.group_bytes();
  tile.first_block = w.first_block();
  tile.blocks = w.blocks();
  tile.out = sums.data();
  const auto& tile_kernels = me.kernels().matmul_tile[static_cast<size_t>(w.type())];
  const int64_t rows = std::min(kGroupRows, y.cols);
  int64_t token = tokens.begin + multiply_panel(me, product, tokens);
  while (token < tokens.end) {
    const int64_t width = next_tile_tokens(x.tokens - token);
    point_at(x, token, tile);
    tile_kernels[static_cast<size_t>(tile_index(width))](tile);
    for (int64_t t = 0; t < width; ++t) {
      std::copy_n(sums.data() + t * kGroupRows, rows, y.row(token + t));
    }
    token += width;
  }
}

size_t panel_scratch_bytes(KernelPath path, int64_t cols_max) {
  if (path != KernelPath::kAmx && path != KernelPath::kPortableTiles) return 0;
  // A shard's columns may touch one block more than they fill.
  return static_cast<size_t>((cols_max / kQuantBlock + 2) * kPanelBlockBytes);
}

}  // namespace shoal::tensor

#include "tensor/activations.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/check.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/packed_layout.h"
#include "tensor/int16_blocks.h"
#include "tensor/quant/quant_block.h"
#include "tensor/quant/quantize.h"

namespace shoal::tensor {
namespace {

using Kind = InputFormat::Kind;

// Bytes of activations that a pass over the weights keeps in the second-level cache.
constexpr int64_t kCachedInputBytes = int64_t{384} * 1024;

void matmul_exact(const Worker& me, const PackedMatrix& w, const Activations& x, FloatRows y) {
  const int64_t cols = w.cols();
  CHECK(me.scratch().size() >= matmul_scratch_bytes(KernelPath::kExact, cols));
  auto* weights = reinterpret_cast<float*>(me.scratch().data());
  const auto* inputs = reinterpret_cast<const float*>(x.data());
  const Range mine = me.share(w.rows());
  for (int64_t row = mine.begin; row < mine.end; ++row) {
    const auto bytes = w.data().subspan(static_cast<size_t>(row * w.group_bytes()),
                                        static_cast<size_t>(w.group_bytes()));
    dequantize_row(w.type(), bytes, w.col_begin(), w.col_begin() + cols, weights);
    for (int64_t token = 0; token < x.tokens(); ++token) {
      y.row(token)[row] = me.kernels().dot(weights, inputs + token * cols, cols);
    }
  }
}

void store_tile(const float* sums, int64_t rows, int64_t tokens, float* y, int64_t stride) {
  for (int64_t t = 0; t < tokens; ++t) std::copy_n(sums + t * kGroupRows, rows, y + t * stride);
}

// The inputs of a tile that begins at `token`.
void point_at_inputs(const Activations& x, int64_t blocks, int64_t token, MatmulTile& tile) {
  if (x.format().kind == Kind::kFloatTiles) {
    tile.inputs = reinterpret_cast<const float*>(x.data()) + token * blocks;
    return;
  }
  const Int16Blocks all(x, x.format(), x.tokens());
  tile.blocks16 = all.inputs + token * blocks * kInputBytes;
  tile.meta = all.meta + token * blocks;
}

// A product under way: y = w x.
struct Product {
  const PackedMatrix& w;
  const Activations& x;
  FloatRows y;
};

// One group of 16 rows times tokens [begin, end), which begin and end with a tile.
void multiply_group(const Kernels& kernels, const Product& product, int64_t group, Range tokens) {
  const auto& [w, x, y] = product;
  alignas(64) std::array<float, kTileTokens * kGroupRows> sums;
  MatmulTile tile;
  tile.weights = w.data().data() + group * w.group_bytes();
  tile.first_block = w.first_block();
  tile.blocks = w.blocks();
  tile.out = sums.data();
  const auto& tile_kernels = kernels.matmul_tile[static_cast<size_t>(w.type())];
  const int64_t row = group * kGroupRows;
  const int64_t rows = std::min(kGroupRows, w.rows() - row);
  for (int64_t token = tokens.begin; token < tokens.end;) {
    const int64_t width = next_tile_tokens(x.tokens() - token);
    point_at_inputs(x, w.blocks(), token, tile);
    tile_kernels[static_cast<size_t>(tile_index(width))](tile);
    store_tile(sums.data(), rows, width, y.row(token) + row, y.stride);
    token += width;
  }
}

// Whole tiles of tokens whose inputs fit the cache.
int64_t tokens_at_once(const InputFormat& format) {
  const int64_t per_token = std::max<int64_t>(
      64, format.kind == Kind::kInt16Blocks ? blocks_of(format) * 80 : format.cols * 4);
  return std::max<int64_t>(kCachedInputBytes / per_token / kTileTokens, 1) * kTileTokens;
}

}  // namespace

Result<Activations> Activations::allocate(const Limits& limits) {
  CHECK(limits.tokens_max >= 1 && limits.cols_max >= 0);
  Activations activations;
  activations.limits_ = limits;
  // A shard's columns may touch one block more than they fill.
  const int64_t blocks = limits.cols_max / kQuantBlock + 2;
  const int64_t per_token =
      std::max(blocks * (kInputBytes + static_cast<int64_t>(sizeof(BlockMeta))),
               limits.cols_max * static_cast<int64_t>(sizeof(float)));
  ASSIGN_OR_RETURN(activations.buffer_,
                   AlignedBuffer::allocate(static_cast<size_t>(limits.tokens_max * per_token)));
  return activations;
}

void matmul(Worker& me, const PackedMatrix& w, const Activations& x, FloatRows y) {
  CHECK(x.format() == w.input_format() && y.rows == x.tokens() && y.cols == w.rows());
  CHECK(w.path() == me.kernels().path);
  const int64_t groups = (w.rows() + kGroupRows - 1) / kGroupRows;
  const Range mine = me.share(groups);
  if (w.cols() == 0) {
    for (int64_t token = 0; token < y.rows; ++token) {
      std::fill(y.row(token) + std::min(mine.begin * kGroupRows, w.rows()),
                y.row(token) + std::min(mine.end * kGroupRows, w.rows()), 0.0F);
    }
    return;
  }
  if (w.path() == KernelPath::kExact) return matmul_exact(me, w, x, y);
  const int64_t chunk = tokens_at_once(x.format());
  for (int64_t begin = 0; begin < x.tokens(); begin += chunk) {
    const Range tokens{begin, std::min(begin + chunk, x.tokens())};
    for (int64_t group = mine.begin; group < mine.end; ++group) {
      multiply_group(me.kernels(), {w, x, y}, group, tokens);
    }
  }
}

size_t matmul_scratch_bytes(KernelPath path, int64_t cols_max) {
  return path == KernelPath::kExact ? static_cast<size_t>(cols_max) * sizeof(float) : 0;
}

}  // namespace shoal::tensor

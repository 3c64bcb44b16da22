#include <algorithm>

#include "base/check.h"
#include "tensor/activations.h"
#include "tensor/cpu/kernels.h"
#include "tensor/matmul/group_product.h"
#include "tensor/quant/quantize.h"

namespace shoal::tensor {
namespace {

// Bytes of activations that a pass over the weights keeps in the second-level cache.
constexpr int64_t kCachedInputBytes = int64_t{384} * 1024;

void matmul_exact(const Worker& me, const PackedMatrix& w, const Activations& x, FloatRows y) {
  const int64_t cols = w.cols();
  CHECK(me.scratch().size() >= matmul_scratch_bytes(KernelPath::kExact, cols));
  auto* weights = reinterpret_cast<float*>(me.scratch().data());
  const auto* inputs = reinterpret_cast<const float*>(x.data());
  const Range mine = me.share(w.rows());
  for (int64_t row = mine.begin; row < mine.end; ++row) {
    dequantize_row(w.type(), w.exact_row(row), w.col_begin(), w.col_begin() + cols, weights);
    for (int64_t token = 0; token < x.tokens(); ++token) {
      y.row(token)[row] = me.kernels().dot(weights, inputs + token * cols, cols);
    }
  }
}

// Whole tiles of tokens whose inputs fit the cache.
int64_t tokens_at_once(const InputTiles& x) {
  const int64_t per_token = std::max<int64_t>(64, x.token_bytes());
  return std::max<int64_t>(kCachedInputBytes / per_token / kTileTokens, 1) * kTileTokens;
}

}  // namespace

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
  const InputTiles tiles = InputTiles::of(x);
  const int64_t chunk = tokens_at_once(tiles);
  for (int64_t begin = 0; begin < x.tokens(); begin += chunk) {
    const Range tokens{begin, std::min(begin + chunk, x.tokens())};
    for (int64_t group = mine.begin; group < mine.end; ++group) {
      const int64_t row = group * kGroupRows;
      multiply_group(me, {w, group, tiles, y.slice(row, w.rows() - row)}, tokens);
    }
  }
}

size_t matmul_scratch_bytes(KernelPath path, int64_t cols_max) {
  if (path == KernelPath::kExact) return static_cast<size_t>(cols_max) * sizeof(float);
  return panel_scratch_bytes(path, cols_max);
}

}  // namespace shoal::tensor

#include "tensor/matmul/matmul_pairs.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "tensor/cpu/kernels.h"
#include "tensor/matmul/group_product.h"
#include "tensor/quant/quantize.h"

namespace shoal::tensor {
namespace {

// Tokens gathered into a worker's scratch at a time.
constexpr int64_t kGatheredMax = 32;

void check_pairs(const PackedMatrix& w, const Activations& x, const PairList& list, FloatRows y) {
  CHECK(x.format() == w.input_format());
  CHECK(list.block_rows > 0 && list.block_rows % kGroupRows == 0);
  CHECK(w.rows() % list.block_rows == 0);
  CHECK(y.rows == static_cast<int64_t>(list.pairs.size()) && y.cols == list.block_rows);
  for (const RowBlockToken& pair : list.pairs) {
    CHECK(pair.row_block >= 0 && pair.row_block < w.rows() / list.block_rows);
    CHECK(pair.token >= 0 && pair.token < x.tokens());
  }
}

// Neighbouring pairs of one row block.
struct Run {
  int64_t row_block = 0;
  std::span<const RowBlockToken> pairs;
  FloatRows y;  // [pairs, block_rows]
};

// Calls fn(Run) for all of the list, each of at most `length_max` pairs.
template <typename Fn>
void for_each_run(const PairList& list, FloatRows y, int64_t length_max, Fn fn) {
  const auto pairs = list.pairs;
  for (size_t begin = 0; begin < pairs.size();) {
    size_t end = begin + 1;
    while (end < pairs.size() && pairs[end].row_block == pairs[begin].row_block &&
           end - begin < static_cast<size_t>(length_max)) {
      ++end;
    }
    const auto first = static_cast<int64_t>(begin);
    const auto count = static_cast<int64_t>(end - begin);
    fn(Run{pairs[begin].row_block,
           pairs.subspan(begin, end - begin),
           {y.row(first), count, y.cols, y.stride}});
    begin = end;
  }
}

void multiply_exact(const Worker& me, const PackedMatrix& w, const Activations& x, const Run& run) {
  const int64_t cols = w.cols();
  auto* weights = reinterpret_cast<float*>(me.scratch().data());
  const auto* inputs = reinterpret_cast<const float*>(x.data());
  const Range mine = me.share(run.y.cols);
  for (int64_t row = mine.begin; row < mine.end; ++row) {
    dequantize_row(w.type(), w.exact_row(run.row_block * run.y.cols + row), w.col_begin(),
                   w.col_begin() + cols, weights);
    for (size_t i = 0; i < run.pairs.size(); ++i) {
      run.y.row(static_cast<int64_t>(i))[row] =
          me.kernels().dot(weights, inputs + run.pairs[i].token * cols, cols);
    }
  }
}

// Tiles of a run's tokens in `memory`.
InputTiles gather(const InputTiles& x, std::span<const RowBlockToken> pairs, std::byte* memory) {
  InputTiles out = x;
  out.tokens = static_cast<int64_t>(pairs.size());
  const BlockOutputs blocks = byte_blocks(memory, out.tokens, x.items);
  auto* floats = reinterpret_cast<float*>(memory);
  for (int64_t i = 0; i < out.tokens; ++i) {
    TokenPlace from = place_of(pairs[static_cast<size_t>(i)].token, x.tokens, x.items);
    TokenPlace to = place_of(i, out.tokens, x.items);
    for (int64_t item = 0; item < x.items; ++item) {
      if (x.kind == InputFormat::Kind::kByteBlocks) {
        const BlockInputs source = x.blocks.at(from.first);
        const BlockOutputs copy = blocks.at(to.first);
        std::memcpy(copy.bytes, source.bytes, kInputBytes);
        *copy.meta = *source.meta;
        if (source.meta->has_second != 0) *copy.second = *source.second;
      } else {
        floats[to.first] = x.floats[from.first];
      }
      from.first += from.stride;
      to.first += to.stride;
    }
  }
  out.blocks = blocks.inputs();
  out.floats = floats;
  return out;
}

}  // namespace

void matmul_pairs(Worker& me, const PackedMatrix& w, const Activations& x, const PairList& list,
                  FloatRows y) {
  check_pairs(w, x, list, y);
  CHECK(w.path() == me.kernels().path);
  CHECK(me.scratch().size() >= matmul_pairs_scratch_bytes(w.path(), w.cols()));
  if (w.cols() == 0) {
    const Range mine = me.share(y.rows);
    for (int64_t i = mine.begin; i < mine.end; ++i) std::fill_n(y.row(i), y.cols, 0.0F);
    return;
  }
  if (w.path() == KernelPath::kExact) {
    for_each_run(list, y, y.rows, [&](const Run& run) { multiply_exact(me, w, x, run); });
    return;
  }
  const InputTiles all = InputTiles::of(x);
  std::byte* memory = me.scratch().data() + panel_scratch_bytes(w.path(), w.cols());
  const Range mine = me.share(list.block_rows / kGroupRows);
  if (mine.size() == 0) return;
  for_each_run(list, y, kGatheredMax, [&](const Run& run) {
    const InputTiles tokens = gather(all, run.pairs, memory);
    for (int64_t group = mine.begin; group < mine.end; ++group) {
      const int64_t row = group * kGroupRows;
      multiply_group(me,
                     {w, run.row_block * (list.block_rows / kGroupRows) + group, tokens,
                      run.y.slice(row, list.block_rows - row)},
                     {0, tokens.tokens});
    }
  });
}

size_t matmul_pairs_scratch_bytes(KernelPath path, int64_t cols_max) {
  if (path == KernelPath::kExact) return matmul_scratch_bytes(path, cols_max);
  return panel_scratch_bytes(path, cols_max) +
         static_cast<size_t>(kGatheredMax * input_bytes_max(cols_max));
}

}  // namespace shoal::tensor

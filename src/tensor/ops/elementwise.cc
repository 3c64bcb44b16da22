#include "tensor/ops/elementwise.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "tensor/cpu/kernels.h"
#include "tensor/quant/quantize.h"

namespace shoal::tensor {
namespace {

// Calls fn(row, begin, end) so that all [rows, cols] values are shared out in runs of 16 columns.
template <typename Fn>
void for_my_values(const Worker& me, int64_t rows, int64_t cols, Fn fn) {
  constexpr int64_t kRun = 16;
  const int64_t runs = (cols + kRun - 1) / kRun;
  const Range mine = me.share(rows * runs);
  for (int64_t run = mine.begin; run < mine.end;) {
    const int64_t row = run / runs;
    const int64_t first = run % runs;
    const int64_t last = std::min(runs, first + mine.end - run);
    fn(row, first * kRun, std::min(last * kRun, cols));
    run += last - first;
  }
}

void normalize(const Kernels& kernels, const float* x, const RmsNorm& norm, float* y) {
  const auto cols = static_cast<int64_t>(norm.weight.size());
  const float mean = kernels.dot(x, x, cols) / static_cast<float>(cols);
  const float factor = 1.0F / std::sqrt(mean + norm.epsilon);
  kernels.scale_by_weight(x, norm.weight.data(), factor, y, cols);
}

}  // namespace

void rms_norm(Worker& me, ConstFloatRows x, const RmsNorm& norm, FloatRows y) {
  CHECK(x.cols == static_cast<int64_t>(norm.weight.size()) && y.cols == x.cols);
  CHECK(x.rows == y.rows);
  const Range mine = me.share(x.rows);
  for (int64_t row = mine.begin; row < mine.end; ++row) {
    normalize(me.kernels(), x.row(row), norm, y.row(row));
  }
}

void rms_norm_heads(Worker& me, FloatRows x, const RmsNorm& norm) {
  const auto head_dim = static_cast<int64_t>(norm.weight.size());
  CHECK(head_dim > 0 && x.cols % head_dim == 0);
  const int64_t heads = x.cols / head_dim;
  const Range mine = me.share(x.rows * heads);
  for (int64_t item = mine.begin; item < mine.end; ++item) {
    float* head = x.row(item / heads) + item % heads * head_dim;
    normalize(me.kernels(), head, norm, head);
  }
}

void add_bias(Worker& me, FloatRows x, std::span<const float> bias) {
  CHECK(x.cols == static_cast<int64_t>(bias.size()));
  for_my_values(me, x.rows, x.cols, [&](int64_t row, int64_t begin, int64_t end) {
    float* values = x.row(row);
    for (int64_t i = begin; i < end; ++i) values[i] += bias[static_cast<size_t>(i)];
  });
}

void add(Worker& me, FloatRows y, ConstFloatRows x) {
  CHECK(x.rows == y.rows && x.cols == y.cols);
  for_my_values(me, x.rows, x.cols, [&](int64_t row, int64_t begin, int64_t end) {
    float* sums = y.row(row);
    const float* values = x.row(row);
    for (int64_t i = begin; i < end; ++i) sums[i] += values[i];
  });
}

void swiglu(Worker& me, ConstFloatRows gate, ConstFloatRows up, FloatRows out) {
  CHECK(gate.rows == up.rows && gate.rows == out.rows);
  CHECK(gate.cols == up.cols && gate.cols == out.cols);
  for_my_values(me, gate.rows, gate.cols, [&](int64_t row, int64_t begin, int64_t end) {
    me.kernels().swiglu(gate.row(row) + begin, up.row(row) + begin, out.row(row) + begin,
                        end - begin);
  });
}

void embedding(Worker& me, const MatrixView& table, std::span<const int32_t> tokens,
               FloatRows out) {
  CHECK(out.rows == static_cast<int64_t>(tokens.size()) && out.cols == table.cols);
  const auto bytes = row_bytes(table.type, static_cast<uint64_t>(table.cols));
  CHECK(bytes.has_value());
  const Range mine = me.share(out.rows);
  for (int64_t i = mine.begin; i < mine.end; ++i) {
    const int32_t token = tokens[static_cast<size_t>(i)];
    CHECK(token >= 0 && token < table.rows);
    dequantize_row(table.type, table.bytes.subspan(static_cast<size_t>(token) * *bytes, *bytes), 0,
                   table.cols, out.row(i));
  }
}

}  // namespace shoal::tensor

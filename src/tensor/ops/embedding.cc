#include "tensor/ops/embedding.h"

#include "base/check.h"
#include "tensor/quant/quantize.h"

namespace shoal::tensor {

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

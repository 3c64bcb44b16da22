// PackedMatrix: one rank's shard of a weight matrix, in the order in which its kernel reads it.
//
// A weight is [rows, cols]: rows are outputs, cols are inputs, each row a whole number of blocks.
// A shard may begin and end anywhere, also inside a quantization block: blocks are kept whole and
// the inputs outside the shard count as zero, so nothing is quantized anew.
// kExact matrices borrow the view's bytes, which must outlive them; the others own a repacked copy
// and the view may go once pack() returns. Thread rule: immutable after pack(); shared reads.
#pragma once

#include <cstdint>
#include <span>

#include "base/status.h"
#include "tensor/aligned_buffer.h"
#include "tensor/dtype.h"
#include "tensor/kernel_path.h"
#include "tensor/threads.h"

namespace shoal::tensor {

// A weight as a file holds it: row after row, no padding, any alignment.
struct MatrixView {
  DType type = DType::kF32;
  int64_t rows = 0;
  int64_t cols = 0;
  std::span<const std::byte> bytes;
};

// Output rows [row_begin, row_end) and input columns [col_begin, col_end); may be empty.
struct Shard {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t col_begin = 0;
  int64_t col_end = 0;

  static Shard whole(const MatrixView& view) { return {0, view.rows, 0, view.cols}; }
};

// How a matrix wants its input. Matrices with equal formats share one Activations.
struct InputFormat {
  enum class Kind : uint8_t {
    kFloat,       // rows of float32, as they are
    kFloatTiles,  // float32, tokens of a tile interleaved
    kByteBlocks,  // blocks of 32 as signed bytes with a float32 scale (cpu/packed_layout.h)
  };
  Kind kind = Kind::kFloat;
  int64_t cols = 0;  // the shard's columns
  int64_t lead = 0;  // zeros before them, to the start of the first block

  bool operator==(const InputFormat&) const = default;
};

class PackedMatrix {
 public:
  PackedMatrix() = default;  // [0, 0]

  // kRequest when the type is not supported, the view's bytes do not fit its shape or the shard
  // lies outside it; kNode without memory. Works in parallel on `pool` when there is one (not from
  // inside a step).
  static Result<PackedMatrix> pack(const MatrixView& view, const Shard& shard, KernelPath path,
                                   WorkerPool* pool = nullptr);

  int64_t rows() const { return rows_; }
  int64_t cols() const { return input_.cols; }
  DType type() const { return type_; }
  KernelPath path() const { return path_; }
  const InputFormat& input_format() const { return input_; }
  // Memory that decoding one token reads: the packed copy, or the borrowed bytes of the shard.
  size_t bytes() const { return bytes_; }

  // For kernels: rows in groups of 16, see cpu/packed_layout.h; for kExact the shard's borrowed
  // rows.
  std::span<const std::byte> data() const { return data_; }
  int64_t group_bytes() const { return group_bytes_; }
  int64_t first_block() const { return first_block_; }
  int64_t blocks() const { return blocks_; }

  int64_t col_begin() const { return col_begin_; }
  // kExact: the whole of a borrowed row.
  std::span<const std::byte> exact_row(int64_t row) const {
    return data_.subspan(static_cast<size_t>(row * group_bytes_),
                         static_cast<size_t>(group_bytes_));
  }

 private:
  void borrow(const MatrixView& view, const Shard& shard, int64_t bytes_per_row);
  [[nodiscard]] Status repack(std::span<const std::byte> rows, int64_t bytes_per_row,
                              WorkerPool* pool);

  DType type_ = DType::kF32;
  KernelPath path_ = KernelPath::kExact;
  InputFormat input_;
  int64_t rows_ = 0;
  int64_t col_begin_ = 0;    // kExact: the first column inside a borrowed row
  int64_t group_bytes_ = 0;  // packed: bytes of 16 rows; kExact: bytes of one whole row
  int64_t first_block_ = 0;  // packed: index of the first 32-column block in the whole row
  int64_t blocks_ = 0;       // packed: 32-column blocks (quantized) or columns (float)
  size_t bytes_ = 0;
  std::span<const std::byte> data_;
  AlignedBuffer owned_;
};

}  // namespace shoal::tensor

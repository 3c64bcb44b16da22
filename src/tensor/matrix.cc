#include "tensor/matrix.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "tensor/cpu/packed_layout.h"
#include "tensor/quant/pack.h"
#include "tensor/quant/quant_block.h"

namespace shoal::tensor {
namespace {

Status check_view(const MatrixView& view, const Shard& shard) {
  const DTypeInfo& info = dtype_info(view.type);
  const std::string shape = std::string(info.name) + " [" + std::to_string(view.rows) + ", " +
                            std::to_string(view.cols) + "]";
  if (!info.is_supported) {
    return Status::request("weights of type " + std::string(info.name) + " are not supported yet");
  }
  if (view.rows < 0 || view.cols < 0) return Status::request("a negative shape: " + shape);
  const auto row = row_bytes(view.type, static_cast<uint64_t>(view.cols));
  if (!row.has_value()) {
    return Status::request(shape + ": a row is no whole number of blocks of " +
                           std::to_string(info.block_elements));
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(*row, static_cast<uint64_t>(view.rows), &bytes) ||
      bytes != view.bytes.size()) {
    return Status::request(shape + " does not fit its " + std::to_string(view.bytes.size()) +
                           " bytes");
  }
  const bool is_inside = shard.row_begin >= 0 && shard.row_begin <= shard.row_end &&
                         shard.row_end <= view.rows && shard.col_begin >= 0 &&
                         shard.col_begin <= shard.col_end && shard.col_end <= view.cols;
  if (!is_inside) return Status::request("a shard lies outside the matrix " + shape);
  return Status::ok();
}

}  // namespace

Result<PackedMatrix> PackedMatrix::pack(const MatrixView& view, const Shard& shard, KernelPath path,
                                        WorkerPool* pool) {
  RETURN_IF_ERROR(check_view(view, shard));
  PackedMatrix matrix;
  matrix.type_ = view.type;
  matrix.path_ = path;
  matrix.rows_ = shard.row_end - shard.row_begin;
  matrix.input_.cols = shard.col_end - shard.col_begin;
  const auto bytes_per_row =
      static_cast<int64_t>(*row_bytes(view.type, static_cast<uint64_t>(view.cols)));
  const bool is_empty = matrix.rows_ == 0 || matrix.input_.cols == 0;
  if (path == KernelPath::kExact) {
    matrix.borrow(view, shard, bytes_per_row);
    return matrix;
  }
  const bool is_quantized = dtype_info(view.type).is_quantized;
  matrix.input_.kind =
      is_quantized ? InputFormat::Kind::kByteBlocks : InputFormat::Kind::kFloatTiles;
  matrix.input_.lead = is_quantized ? shard.col_begin % kQuantBlock : 0;
  if (is_empty) return matrix;
  if (is_quantized) {
    matrix.first_block_ = shard.col_begin / kQuantBlock;
    matrix.blocks_ = (shard.col_end + kQuantBlock - 1) / kQuantBlock - matrix.first_block_;
  } else {
    matrix.first_block_ = shard.col_begin;
    matrix.blocks_ = matrix.input_.cols;
  }
  RETURN_IF_ERROR(
      matrix.repack(view.bytes.subspan(shard.row_begin * bytes_per_row), bytes_per_row, pool));
  return matrix;
}

void PackedMatrix::borrow(const MatrixView& view, const Shard& shard, int64_t bytes_per_row) {
  const DTypeInfo& info = dtype_info(view.type);
  col_begin_ = shard.col_begin;
  group_bytes_ = bytes_per_row;
  data_ = view.bytes.subspan(static_cast<size_t>(shard.row_begin * bytes_per_row),
                             static_cast<size_t>(rows_ * bytes_per_row));
  const int64_t elements = info.block_elements;
  const int64_t blocks = (shard.col_end + elements - 1) / elements - shard.col_begin / elements;
  bytes_ = static_cast<size_t>(rows_ * (input_.cols == 0 ? 0 : blocks) * info.block_bytes);
}

Status PackedMatrix::repack(std::span<const std::byte> rows, int64_t bytes_per_row,
                            WorkerPool* pool) {
  group_bytes_ = packed_group_bytes(type_, first_block_, blocks_);
  const int64_t groups = (rows_ + kGroupRows - 1) / kGroupRows;
  bytes_ = static_cast<size_t>(groups * group_bytes_);
  ASSIGN_OR_RETURN(owned_, AlignedBuffer::allocate(bytes_));
  data_ = owned_.bytes();
  const auto pack_groups = [&](Range range) {
    for (int64_t group = range.begin; group < range.end; ++group) {
      GroupSource source;
      source.type = type_;
      source.row = rows.data() + group * kGroupRows * bytes_per_row;
      source.row_bytes = bytes_per_row;
      source.rows = std::min(kGroupRows, rows_ - group * kGroupRows);
      source.first_block = first_block_;
      source.blocks = blocks_;
      pack_group(source, owned_.data() + group * group_bytes_);
    }
  };
  if (pool == nullptr) {
    pack_groups({0, groups});
  } else {
    pool->run([&](Worker& me) { pack_groups(me.share(groups)); });
  }
  return Status::ok();
}

}  // namespace shoal::tensor

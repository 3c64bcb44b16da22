#include <algorithm>
#include <array>

#include "base/check.h"
#include "tensor/activations.h"
#include "tensor/byte_blocks.h"
#include "tensor/cpu/kernels.h"

namespace shoal::tensor {
namespace {

using Kind = InputFormat::Kind;

// Columns that are computed at a time, in the first-level cache.
constexpr int64_t kPieceCols = 8 * kQuantBlock;
using Piece = std::array<float, kPieceCols>;

// The values of an InputSource, token by token, computed by one worker.
class SourceReader {
 public:
  SourceReader(const Worker& me, const InputSource& source)
      : source_(source), kernels_(me.kernels()) {
    if (source_.addend.data == nullptr) return;
    CHECK(me.scratch().size() >= packing_scratch_bytes(source_.x.cols));
    sums_ = reinterpret_cast<float*>(me.scratch().data());
  }

  void start(int64_t token) {
    token_ = token;
    x_ = source_.x.row(token);
    if (source_.kind != InputSource::Kind::kNormed) return;
    const int64_t cols = source_.x.cols;
    if (sums_ != nullptr) {
      const float* addend = source_.addend.row(token);
      for (int64_t i = 0; i < cols; ++i) sums_[i] = x_[i] + addend[i];
      x_ = sums_;
    }
    factor_ = source_.norm.factor(kernels_, x_);
  }

  // Columns [begin, begin + count) of the token, perhaps in `piece`.
  const float* read(int64_t begin, int64_t count, Piece& piece) {
    switch (source_.kind) {
      case InputSource::Kind::kRows:
        return x_ + begin;
      case InputSource::Kind::kNormed:
        if (sums_ != nullptr) std::copy_n(x_ + begin, count, source_.sum.row(token_) + begin);
        kernels_.scale_by_weight(x_ + begin, source_.norm.weight.data() + begin, factor_,
                                 piece.data(), count);
        return piece.data();
      case InputSource::Kind::kSwiglu:
        kernels_.swiglu(x_ + begin, source_.up.row(token_) + begin, piece.data(), count);
        return piece.data();
    }
    return nullptr;
  }

 private:
  const InputSource& source_;
  const Kernels& kernels_;
  float* sums_ = nullptr;  // the token's x + addend
  const float* x_ = nullptr;
  int64_t token_ = 0;
  float factor_ = 0;
};

// Writes a token's values where the format wants them.
class FormatWriter {
 public:
  FormatWriter(const Kernels& kernels, const InputFormat& format, int64_t tokens,
               const Activations& out)
      : kernels_(kernels),
        format_(format),
        floats_(reinterpret_cast<float*>(out.data())),
        blocks_(byte_blocks(out.data(), tokens, blocks_of(format))),
        tokens_(tokens) {}

  void start(int64_t token) {
    switch (format_.kind) {
      case Kind::kByteBlocks:
        place_ = place_of(token, tokens_, blocks_of(format_));
        return;
      case Kind::kFloatTiles:
        place_ = place_of(token, tokens_, format_.cols);
        return;
      case Kind::kFloat:
        place_ = {token * format_.cols, 1};
        return;
    }
  }

  // Columns [begin, begin + count).
  void write(const float* values, int64_t begin, int64_t count) const {
    if (format_.kind == Kind::kByteBlocks) return write_blocks(values, begin, count);
    float* to = floats_ + place_.first + begin * place_.stride;
    for (int64_t i = 0; i < count; ++i) to[i * place_.stride] = values[i];
  }

 private:
  // With zeros before the first column and after the last.
  void write_blocks(const float* values, int64_t begin, int64_t count) const {
    while (count > 0) {
      const int64_t block = (begin + format_.lead) / kQuantBlock;
      const int64_t offset = (begin + format_.lead) % kQuantBlock;
      int64_t taken = count / kQuantBlock * kQuantBlock;
      if (offset == 0 && taken > 0) {
        quantize(values, block, taken / kQuantBlock);
      } else {
        taken = std::min(kQuantBlock - offset, count);
        std::array<float, kQuantBlock> padded{};
        std::copy_n(values, taken, padded.begin() + offset);
        quantize(padded.data(), block, 1);
      }
      values += taken;
      begin += taken;
      count -= taken;
    }
  }

  void quantize(const float* values, int64_t block, int64_t count) const {
    kernels_.quantize_blocks(values, count, blocks_.at(place_.first + block * place_.stride),
                             place_.stride);
  }

  const Kernels& kernels_;
  const InputFormat& format_;
  float* floats_;
  BlockOutputs blocks_;
  int64_t tokens_;
  TokenPlace place_;
};

}  // namespace

InputSource InputSource::rows(ConstFloatRows x) {
  InputSource source;
  source.x = x;
  return source;
}

InputSource InputSource::normed(ConstFloatRows x, const RmsNorm& norm) {
  CHECK(x.cols == norm.cols());
  InputSource source;
  source.kind = Kind::kNormed;
  source.x = x;
  source.norm = norm;
  return source;
}

InputSource InputSource::normed_sum(const ResidualSum& residual, const RmsNorm& norm) {
  CHECK(residual.x.rows == residual.addend.rows && residual.x.cols == residual.addend.cols);
  CHECK(residual.x.rows == residual.sum.rows && residual.x.cols == residual.sum.cols);
  CHECK(residual.sum.data != residual.x.data && residual.sum.data != residual.addend.data);
  InputSource source = normed(residual.x, norm);
  source.addend = residual.addend;
  source.sum = residual.sum;
  return source;
}

InputSource InputSource::swiglu(ConstFloatRows gate, ConstFloatRows up) {
  CHECK(gate.rows == up.rows && gate.cols == up.cols);
  InputSource source;
  source.kind = Kind::kSwiglu;
  source.x = gate;
  source.up = up;
  return source;
}

InputSource InputSource::again() const {
  return addend.data == nullptr ? *this : normed(sum, norm);
}

void pack_activations(Worker& me, const InputSource& source, const InputFormat& format,
                      Activations& out) {
  const ConstFloatRows& x = source.x;
  CHECK(x.cols == format.cols && x.cols <= out.limits_.cols_max);
  CHECK(x.rows <= out.limits_.tokens_max);
  if (me.is_first()) {
    out.format_ = format;
    out.tokens_ = x.rows;
  }
  const int64_t blocks = blocks_of(format);
  if (blocks == 0) return;
  SourceReader reader(me, source);
  FormatWriter writer(me.kernels(), format, x.rows, out);
  Piece piece;
  // All blocks of all tokens, token after token, are shared out evenly.
  const Range mine = me.share(x.rows * blocks);
  for (int64_t item = mine.begin; item < mine.end;) {
    const int64_t token = item / blocks;
    const int64_t first = item % blocks;
    const int64_t count = std::min(blocks - first, mine.end - item);
    item += count;
    reader.start(token);
    writer.start(token);
    const int64_t end = std::min((first + count) * kQuantBlock - format.lead, format.cols);
    for (int64_t begin = std::max<int64_t>(first * kQuantBlock - format.lead, 0); begin < end;) {
      // Pieces end where blocks end.
      const int64_t piece_cols =
          std::min(end - begin, kPieceCols - (begin + format.lead) % kQuantBlock);
      writer.write(reader.read(begin, piece_cols, piece), begin, piece_cols);
      begin += piece_cols;
    }
  }
}

size_t packing_scratch_bytes(int64_t cols_max) {
  return static_cast<size_t>(cols_max) * sizeof(float);
}

}  // namespace shoal::tensor

// Activations: the input of matrices in the format that their kernels read, and matmul.
//
// Used in a step as: pack_activations, barrier, matmul with every matrix of that format (q, k, v;
// gate, up). Results do not depend on the number of workers, nor on the other tokens of the batch:
// a token's output bits are the same alone and inside a prefill.
// Thread rule: both ops are called by every worker of a step (SPMD) and end without a barrier.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "tensor/matrix.h"
#include "tensor/ops/rms_norm.h"
#include "tensor/rows.h"
#include "tensor/threads.h"

namespace shoal::tensor {

// The terms of a residual stream's next value: sum = x + addend, in memory of its own.
struct ResidualSum {
  ConstFloatRows x;
  ConstFloatRows addend;
  FloatRows sum;
};

// What pack_activations packs: rows as they are, or computed on the way, so that a norm, a residual
// add or SwiGLU costs no pass over memory and no barrier of its own.
struct InputSource {
  enum class Kind : uint8_t { kRows, kNormed, kSwiglu };

  static InputSource rows(ConstFloatRows x);
  // The RMS norm of each row (ops/rms_norm.h).
  static InputSource normed(ConstFloatRows x, const RmsNorm& norm);
  // The RMS norm of x + addend; packing also writes the sum.
  static InputSource normed_sum(const ResidualSum& residual, const RmsNorm& norm);
  // silu(gate) * up.
  static InputSource swiglu(ConstFloatRows gate, ConstFloatRows up);

  // The same values for packing in another format, once this source was packed (after a barrier).
  InputSource again() const;

  Kind kind = Kind::kRows;
  ConstFloatRows x;  // or gate
  ConstFloatRows up;
  ConstFloatRows addend;
  FloatRows sum;
  RmsNorm norm;
};

class Activations {
 public:
  struct Limits {
    int64_t tokens_max = 1;
    int64_t cols_max = 0;  // the most columns of any matrix that will read it
  };

  Activations() = default;
  // All the memory it will ever use. kNode without memory.
  static Result<Activations> allocate(const Limits& limits);

  const InputFormat& format() const { return format_; }
  int64_t tokens() const { return tokens_; }
  size_t bytes() const { return buffer_.size(); }
  // For kernels: the layout is cpu/packed_layout.h's.
  std::byte* data() const { return buffer_.data(); }

 private:
  friend void pack_activations(Worker& me, const InputSource& source, const InputFormat& format,
                               Activations& out);
  Limits limits_;
  InputFormat format_;
  int64_t tokens_ = 0;
  AlignedBuffer buffer_;
};

// source [tokens, format.cols] into out. CHECKs the limits. A row that several workers share is
// normalized by each of them, with the same bits. Needs packing_scratch_bytes of worker scratch. No
// barrier at the end: call one before matmul, and one before the next pack_activations into the
// same object.
void pack_activations(Worker& me, const InputSource& source, const InputFormat& format,
                      Activations& out);

// Scratch that pack_activations needs for rows of up to cols_max columns.
size_t packing_scratch_bytes(int64_t cols_max);

// y[token, row] = sum over columns of w[row, column] * x[token, column]; y [tokens, w.rows()], any
// stride. CHECKs that x has w's input format. A matrix without columns gives zeros. Needs
// matmul_scratch_bytes of worker scratch. NaN and infinity in weights or inputs give a non-finite
// output in the rows and tokens that they touch. No barrier at the end.
void matmul(Worker& me, const PackedMatrix& w, const Activations& x, FloatRows y);

// Scratch that matmul needs for matrices of up to cols_max columns.
size_t matmul_scratch_bytes(KernelPath path, int64_t cols_max);

}  // namespace shoal::tensor

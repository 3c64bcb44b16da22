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
#include "tensor/rows.h"
#include "tensor/threads.h"

namespace shoal::tensor {

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
  friend void pack_activations(Worker& me, ConstFloatRows x, const InputFormat& format,
                               Activations& out);
  Limits limits_;
  InputFormat format_;
  int64_t tokens_ = 0;
  AlignedBuffer buffer_;
};

// x [tokens, format.cols] into out. CHECKs the limits. No barrier at the end: call one before
// matmul, and one before the next pack_activations into the same object.
void pack_activations(Worker& me, ConstFloatRows x, const InputFormat& format, Activations& out);

// y[token, row] = sum over columns of w[row, column] * x[token, column]; y [tokens, w.rows()], any
// stride. CHECKs that x has w's input format. A matrix without columns gives zeros. Needs
// matmul_scratch_bytes of worker scratch. NaN and infinity in weights or inputs give a non-finite
// output in the rows and tokens that they touch. No barrier at the end.
void matmul(Worker& me, const PackedMatrix& w, const Activations& x, FloatRows y);

// Scratch that matmul needs for matrices of up to cols_max columns.
size_t matmul_scratch_bytes(KernelPath path, int64_t cols_max);

}  // namespace shoal::tensor

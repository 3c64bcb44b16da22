// The ops of a transformer layer that touch each value once: norms, adds, SwiGLU, embedding.
//
// Thread rule: SPMD, called by every worker of a step; each ends without a barrier. Work is split
// by tokens and, where one token has enough of it, by columns; result bits do not depend on the
// split, except that a norm of one row is computed by one worker. NaN and infinity propagate.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/matrix.h"
#include "tensor/rows.h"
#include "tensor/threads.h"

namespace shoal::tensor {

struct RmsNorm {
  std::span<const float> weight;  // [cols]
  float epsilon = 0;
};

// y = x / sqrt(mean(x^2) + epsilon) * weight, row by row; y may be x.
void rms_norm(Worker& me, ConstFloatRows x, const RmsNorm& norm, FloatRows y);

// The same for every head of a row on its own, in place: x [tokens, heads * weight.size()].
void rms_norm_heads(Worker& me, FloatRows x, const RmsNorm& norm);

// x[token, :] += bias.
void add_bias(Worker& me, FloatRows x, std::span<const float> bias);

// y += x.
void add(Worker& me, FloatRows y, ConstFloatRows x);

// out = silu(gate) * up; out may be gate or up.
void swiglu(Worker& me, ConstFloatRows gate, ConstFloatRows up, FloatRows out);

// out[i, :] = row tokens[i] of the table, dequantized. CHECKs that ids lie in the table: the caller
// has validated them.
void embedding(Worker& me, const MatrixView& table, std::span<const int32_t> tokens, FloatRows out);

}  // namespace shoal::tensor

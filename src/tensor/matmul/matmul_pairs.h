// matmul_pairs: products of a list of (row block, token) pairs, for mixtures of experts.
//
// The experts' weights are one matrix, each a block of its rows; a router's choice is a list of
// pairs. Neighbouring pairs of one block read its weights together, so callers sort by block. A
// pair's result has the bits that matmul gives for those rows and that token.
// Thread rule: called by every worker of a step (SPMD); ends without a barrier.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/activations.h"

namespace shoal::tensor {

struct RowBlockToken {
  int64_t row_block = 0;
  int64_t token = 0;
};

struct PairList {
  int64_t block_rows = 0;  // a multiple of 16 that divides the matrix's rows
  std::span<const RowBlockToken> pairs;
};

// y[i, r] = sum over columns of w[pairs[i].row_block * block_rows + r, column] *
// x[pairs[i].token, column]; y [pairs, block_rows]. CHECKs the shapes and that every pair lies
// inside them. Needs matmul_pairs_scratch_bytes of worker scratch.
void matmul_pairs(Worker& me, const PackedMatrix& w, const Activations& x, const PairList& list,
                  FloatRows y);

size_t matmul_pairs_scratch_bytes(KernelPath path, int64_t cols_max);

}  // namespace shoal::tensor

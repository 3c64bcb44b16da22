// GroupProduct: one group of 16 rows of a packed matrix times tokens in tiles; internal to tensor.
//
// What matmul and matmul_pairs share. Thread rule: pure functions; scratch is the worker's.
#pragma once

#include <cstdint>

#include "tensor/activations.h"
#include "tensor/byte_blocks.h"
#include "tensor/cpu/packed_layout.h"

namespace shoal::tensor {

// Inputs in the tiles of cpu/packed_layout.h: those of an Activations, or gathered ones.
struct InputTiles {
  InputFormat::Kind kind = InputFormat::Kind::kByteBlocks;
  int64_t tokens = 0;
  int64_t items = 0;              // per token: 32-column blocks, or columns of kFloatTiles
  BlockInputs blocks;             // kByteBlocks
  const float* floats = nullptr;  // kFloatTiles

  static InputTiles of(const Activations& x);
  // Of one token, second bytes not counted: few blocks have them.
  int64_t token_bytes() const;
};

struct GroupProduct {
  const PackedMatrix& w;
  int64_t group;
  const InputTiles& x;
  FloatRows y;  // [x.tokens, w's rows from the group on]
};

// Tokens [begin, end) of x, which begin and end with a tile. Needs panel_scratch_bytes of scratch.
void multiply_group(const Worker& me, const GroupProduct& product, Range tokens);

size_t panel_scratch_bytes(KernelPath path, int64_t cols_max);

}  // namespace shoal::tensor

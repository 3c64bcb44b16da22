// Where the integers and scales of kInt16Blocks activations, and a token inside tiles, lie;
// internal to tensor.
//
// Thread rule: plain views.
#pragma once

#include <cstdint>

#include "tensor/activations.h"
#include "tensor/cpu/packed_layout.h"
#include "tensor/quant/quant_block.h"

namespace shoal::tensor {

// Blocks of 32 columns that a token fills, those in front of its first column included.
inline int64_t blocks_of(const InputFormat& format) {
  if (format.cols == 0) return 0;
  return (format.lead + format.cols + kQuantBlock - 1) / kQuantBlock;
}

// The blocks of all tokens: integers, then their BlockMeta.
struct Int16Blocks {
  int8_t* inputs;
  BlockMeta* meta;
  int64_t blocks;

  Int16Blocks(const Activations& x, const InputFormat& format, int64_t tokens)
      : inputs(reinterpret_cast<int8_t*>(x.data())),
        meta(reinterpret_cast<BlockMeta*>(x.data() + tokens * blocks_of(format) * kInputBytes)),
        blocks(blocks_of(format)) {}
};

// One token inside the tiles: its item (block or column) i is at index first + i * stride.
struct TokenPlace {
  int64_t first = 0;
  int64_t stride = 1;
};

inline TokenPlace place_of(int64_t token, int64_t tokens, int64_t items) {
  int64_t begin = token / kTileTokens * kTileTokens;
  for (;;) {
    const int64_t width = next_tile_tokens(tokens - begin);
    if (token < begin + width) return {begin * items + token - begin, width};
    begin += width;
  }
}

}  // namespace shoal::tensor

// Where the blocks of kByteBlocks activations, and a token inside tiles, lie; internal to tensor.
//
// Thread rule: plain views.
#pragma once

#include <algorithm>
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

// The blocks of `tokens` tokens in memory of kBlockInputBytes for each block.
inline BlockOutputs byte_blocks(std::byte* memory, int64_t tokens, int64_t blocks) {
  const int64_t all = tokens * blocks;
  std::byte* meta = memory + all * kInputBytes;
  std::byte* second = meta + all * static_cast<int64_t>(sizeof(BlockMeta));
  return {reinterpret_cast<int8_t*>(memory), reinterpret_cast<BlockMeta*>(meta),
          reinterpret_cast<SecondBytes*>(second)};
}

// Memory of a token's inputs, in either format, for up to cols_max columns.
inline int64_t input_bytes_max(int64_t cols_max) {
  // A shard's columns may touch one block more than they fill.
  const int64_t blocks = cols_max / kQuantBlock + 2;
  return std::max(blocks * kBlockInputBytes, cols_max * static_cast<int64_t>(sizeof(float)));
}

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

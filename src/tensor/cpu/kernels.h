// Kernels: the table of functions of one kernel path, called by the ops.
//
// Each path has one source (exact.cc, portable.cc, avx512.cc, ...) that fills a table; the ops
// above know nothing of instruction sets. Thread rule: tables are constant, the functions are pure.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "tensor/cpu/packed_layout.h"
#include "tensor/kernel_path.h"
#include "tensor/ops/kv_page.h"

namespace shoal::tensor {

inline constexpr size_t kTileWidths = 4;  // 1, 2, 4, 8 tokens
inline constexpr int64_t kFloatOpsPerRound = 12 * 16 * 2;

// One group of 16 rows times one tile of tokens.
struct MatmulTile {
  const std::byte* weights = nullptr;  // the group
  int64_t first_block = 0;             // of the whole row, says where super-blocks begin
  int64_t blocks = 0;                  // 32-column blocks, or columns of a float type
  BlockInputs inputs;                  // kByteBlocks
  const float* floats = nullptr;       // kFloatTiles
  float* out = nullptr;                // [tile tokens, 16]
};

inline constexpr int64_t kPanelBlockBytes = 512 + 4 * 64;

// One group of 16 rows of a quantized type times many tiles of 8 tokens.
struct MatmulPanel {
  const std::byte* weights = nullptr;
  int64_t first_block = 0;
  int64_t blocks = 0;
  BlockInputs inputs;  // of the first tile
  int64_t tiles = 0;
  float* out = nullptr;  // the first token's first row
  int64_t out_stride = 0;
  int64_t rows = 0;              // of the group that exist
  std::byte* scratch = nullptr;  // panel_scratch_bytes, 64-byte aligned
};

// Positions of one part of attention, from a multiple of it: whole pages, about 512.
[[gnu::always_inline]] inline int64_t attention_chunk(const KvLayout& layout) {
  return layout.page_tokens > 512 ? layout.page_tokens
                                  : 512 / layout.page_tokens * layout.page_tokens;
}
// A part: an output before its division [value_stride], its maximum and its sum; padded.
[[gnu::always_inline]] inline int64_t attention_part_floats(const KvLayout& layout) {
  return layout.value_stride() + KvLayout::kLanes;
}

// Up to 64 queries of one KV head against its pages.
struct AttentionTile {
  static constexpr int64_t kQueriesMax = 64;

  const KvLayout* layout = nullptr;
  std::span<std::byte* const> pages;
  int64_t kv_head = 0;  // in the layout
  int64_t queries = 0;
  float scale = 1.0F;
  int64_t chunk = -1;                         // only this one, into parts; or all of them
  std::array<const float*, kQueriesMax> q{};  // [head_dim] each
  std::array<float*, kQueriesMax> out{};      // [head_dim] each, or a part
  std::array<int64_t, kQueriesMax> begin{};   // positions [begin, end) are seen
  std::array<int64_t, kQueriesMax> end{};
  std::span<std::byte> scratch;  // attention_tile_floats
};

// One query's parts, in order of position, into its output.
struct AttentionMerge {
  const KvLayout* layout = nullptr;
  const float* parts = nullptr;
  int64_t count = 0;
  float* total = nullptr;  // scratch of a part
  float* out = nullptr;    // [head_dim]
};

struct Kernels {
  KernelPath path = KernelPath::kExact;

  // kByteBlocks: one token's `blocks` blocks of 32 floats; results `stride` blocks apart.
  void (*quantize_blocks)(const float* x, int64_t blocks, const BlockOutputs& out,
                          int64_t stride) = nullptr;
  using MatmulTileFn = void (*)(const MatmulTile& tile);
  // [type][tile_index(tokens)]; empty in kExact.
  std::array<std::array<MatmulTileFn, kTileWidths>, kSupportedTypes> matmul_tile{};
  using MatmulPanelFn = void (*)(const MatmulPanel& panel);
  // [type]; empty where nothing is faster than matmul_tile, whose bits it gives.
  std::array<MatmulPanelFn, kSupportedTypes> matmul_panel{};
  // sum of a[i] * b[i].
  float (*dot)(const float* a, const float* b, int64_t count) = nullptr;
  // y = x * factor * weight.
  void (*scale_by_weight)(const float* x, const float* weight, float factor, float* y,
                          int64_t count) = nullptr;
  // out = silu(gate) * up.
  void (*swiglu)(const float* gate, const float* up, float* out, int64_t count) = nullptr;
  // x as halves, two bytes each, with the bits of float_to_f16_saturated.
  void (*store_halves)(const float* x, int64_t count, std::byte* halves) = nullptr;
  void (*attention_tile)(const AttentionTile& tile) = nullptr;
  // Empty where attention_tile knows no chunks.
  void (*merge_attention)(const AttentionMerge& merge) = nullptr;
  // Sum of exp(x[i] - shift).
  double (*sum_exp)(const float* x, float shift, int64_t count) = nullptr;

  // A probe: `rounds` times kFloatOpsPerRound float operations in registers.
  float (*float_rounds)(int64_t rounds) = nullptr;
};

// CHECKs that the path runs here.
const Kernels& kernels_for(KernelPath path);

// The tables, one per source; a path that the architecture lacks has an empty table.
extern const Kernels kExactKernels;
extern const Kernels kPortableTilesKernels;
extern const Kernels kPortableKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvxVnniKernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kAmxKernels;
extern const Kernels kNeonDotKernels;
extern const Kernels kNeonI8mmKernels;

}  // namespace shoal::tensor

// The attention kernel over KV pages, written once over a vector set V.
//
// A tile has 1, 2, 4 or 8 queries of one KV head. Page by page: the scores of 16 positions are one
// vector (keys lie with 16 positions side by side, so a score needs no sum across lanes), then the
// running maximum m, sum l and output o of online softmax (Milakov and Gimelshein 2018):
//   m' = max(m, scores), o = o * exp(m - m') + sum of exp(score - m') * value, l likewise.
// A query's arithmetic is the same in tiles of every width: positions that only its neighbours see
// add an exact zero. Thread rule: pure functions; scratch belongs to the caller.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "tensor/cpu/kernels.h"
#include "tensor/cpu/vector_kernel.h"

namespace shoal::tensor {

// Scratch of one tile, in floats.
inline int64_t attention_tile_floats(const KvLayout& layout) {
  return kTileTokens * (layout.head_dim + layout.page_tokens + layout.value_stride());
}

template <typename V, DType Type>
inline typename V::F load_kv(const std::byte* page, int64_t element) {
  if constexpr (Type == DType::kF32) {
    return V::load(reinterpret_cast<const float*>(page) + element);
  } else {
    return V::load_f16(page + element * 2);
  }
}

// scores[q][16 v] for `vectors` vectors of positions from `slot`; q_lanes is [head_dim][queries].
template <typename V, DType Type, int Queries, int Vectors>
inline void score_positions(const AttentionTile& tile, const std::byte* page, int64_t slot,
                            const float* q_lanes, float* scores) {
  const KvLayout& layout = *tile.layout;
  typename V::F acc[Queries][Vectors];
  for (auto& row : acc) {
    for (auto& lanes : row) lanes = V::set(0.0F);
  }
  int64_t element = layout.key_offset(tile.kv_head, 0, slot);
  for (int64_t d = 0; d < layout.head_dim; ++d, element += layout.page_tokens) {
    for (int v = 0; v < Vectors; ++v) {
      const auto keys = load_kv<V, Type>(page, element + 16 * v);
      for (int q = 0; q < Queries; ++q) {
        acc[q][v] = V::fma(keys, V::set(q_lanes[d * Queries + q]), acc[q][v]);
      }
    }
  }
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) {
      V::store(scores + q * layout.page_tokens + slot + 16 * v, acc[q][v]);
    }
  }
}

// The slots of one page that some query of the tile sees.
struct SlotRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// The working memory of a tile.
template <int Queries>
struct AttentionState {
  float* q_lanes = nullptr;  // [head_dim, Queries], scaled
  float* scores = nullptr;   // [Queries, page_tokens], then the weights
  float* outputs = nullptr;  // [Queries, value_stride]
  std::array<float, Queries> maximum{};
  std::array<float, Queries> sum{};
  std::array<float, Queries> rescale{};
};

// outputs[q][dims] = outputs * rescale + sum over slots of weights * values, 16 dims per vector.
template <typename V, DType Type, int Queries, int Vectors>
inline void add_values(const AttentionTile& tile, const std::byte* page, SlotRange slots,
                       int64_t dim, const AttentionState<Queries>& state) {
  const KvLayout& layout = *tile.layout;
  typename V::F acc[Queries][Vectors];
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) {
      const float* outputs = state.outputs + q * layout.value_stride() + dim + 16 * v;
      acc[q][v] = V::mul(V::load(outputs), V::set(state.rescale[q]));
    }
  }
  int64_t element = layout.value_offset(tile.kv_head, slots.begin, dim);
  for (int64_t s = slots.begin; s < slots.end; ++s, element += layout.value_stride()) {
    for (int v = 0; v < Vectors; ++v) {
      const auto values = load_kv<V, Type>(page, element + 16 * v);
      for (int q = 0; q < Queries; ++q) {
        acc[q][v] = V::fma(values, V::set(state.scores[q * layout.page_tokens + s]), acc[q][v]);
      }
    }
  }
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) {
      V::store(state.outputs + q * layout.value_stride() + dim + 16 * v, acc[q][v]);
    }
  }
}

// Turns query q's scores of this page into weights and moves its maximum, sum and rescale on.
template <typename V, int Queries>
inline void soften(const AttentionTile& tile, int q, int64_t page_begin, SlotRange slots,
                   AttentionState<Queries>& state) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  float* scores = state.scores + q * tile.layout->page_tokens;
  const int64_t begin = tile.begin[q] - page_begin;
  const int64_t end = tile.end[q] - page_begin;
  const int64_t vector_begin = slots.begin / 16 * 16;
  auto maxima = V::set(kNone);
  for (int64_t s = vector_begin; s < slots.end; s += 16) {
    const auto seen = V::keep_lanes(V::load(scores + s), begin - s, end - s, kNone);
    V::store(scores + s, seen);
    maxima = V::max(maxima, seen);
  }
  const float maximum = std::max(state.maximum[q], V::reduce_max(maxima));
  const float shift = maximum == kNone ? 0.0F : maximum;
  auto sums = V::set(0.0F);
  for (int64_t s = vector_begin; s < slots.end; s += 16) {
    const auto weights = exp_lanes<V>(V::sub(V::load(scores + s), V::set(shift)));
    V::store(scores + s, weights);
    sums = V::add(sums, weights);
  }
  state.rescale[q] = std::exp(state.maximum[q] - shift);
  state.sum[q] = state.sum[q] * state.rescale[q] + V::reduce_add(sums);
  state.maximum[q] = maximum;
}

template <typename V, DType Type, int Queries>
void attend_page(const AttentionTile& tile, int64_t page_index, SlotRange slots,
                 AttentionState<Queries>& state) {
  constexpr int kVectors = V::attention_vectors(Queries);
  const KvLayout& layout = *tile.layout;
  const std::byte* page = tile.pages[static_cast<size_t>(page_index)];
  int64_t slot = slots.begin / 16 * 16;
  for (; slot + 16 * (kVectors - 1) < slots.end && slot + 16 * kVectors <= layout.page_tokens;
       slot += 16 * kVectors) {
    score_positions<V, Type, Queries, kVectors>(tile, page, slot, state.q_lanes, state.scores);
  }
  for (; slot < slots.end; slot += 16) {
    score_positions<V, Type, Queries, 1>(tile, page, slot, state.q_lanes, state.scores);
  }
  for (int q = 0; q < Queries; ++q) {
    soften<V, Queries>(tile, q, page_index * layout.page_tokens, slots, state);
  }
  int64_t dim = 0;
  for (; dim + 16 * kVectors <= layout.value_stride(); dim += 16 * kVectors) {
    add_values<V, Type, Queries, kVectors>(tile, page, slots, dim, state);
  }
  for (; dim < layout.value_stride(); dim += 16) {
    add_values<V, Type, Queries, 1>(tile, page, slots, dim, state);
  }
}

template <typename V, int Queries>
AttentionState<Queries> start_tile(const AttentionTile& tile) {
  const KvLayout& layout = *tile.layout;
  AttentionState<Queries> state;
  state.q_lanes = reinterpret_cast<float*>(tile.scratch.data());
  state.scores = state.q_lanes + Queries * layout.head_dim;
  state.outputs = state.scores + Queries * layout.page_tokens;
  for (int64_t d = 0; d < layout.head_dim; ++d) {
    for (int q = 0; q < Queries; ++q) state.q_lanes[d * Queries + q] = tile.q[q][d] * tile.scale;
  }
  std::fill_n(state.outputs, Queries * layout.value_stride(), 0.0F);
  state.maximum.fill(-std::numeric_limits<float>::infinity());
  return state;
}

template <typename V, DType Type, int Queries>
void attend_tile(const AttentionTile& tile) {
  const KvLayout& layout = *tile.layout;
  AttentionState<Queries> state = start_tile<V, Queries>(tile);
  const int64_t begin = *std::min_element(tile.begin.begin(), tile.begin.begin() + Queries);
  const int64_t end = *std::max_element(tile.end.begin(), tile.end.begin() + Queries);
  for (int64_t page = begin / layout.page_tokens; page * layout.page_tokens < end; ++page) {
    const int64_t first = page * layout.page_tokens;
    attend_page<V, Type, Queries>(
        tile, page,
        {std::max<int64_t>(begin - first, 0), std::min(end - first, layout.page_tokens)}, state);
  }
  for (int q = 0; q < Queries; ++q) {
    const float* outputs = state.outputs + q * layout.value_stride();
    const float inverse = state.sum[q] == 0.0F ? 0.0F : 1.0F / state.sum[q];
    for (int64_t d = 0; d < layout.head_dim; ++d) tile.out[q][d] = outputs[d] * inverse;
  }
}

template <typename V, DType Type>
void attend_tile_of(const AttentionTile& tile) {
  switch (tile.queries) {
    case 8:
      return attend_tile<V, Type, 8>(tile);
    case 4:
      return attend_tile<V, Type, 4>(tile);
    case 2:
      return attend_tile<V, Type, 2>(tile);
    default:
      return attend_tile<V, Type, 1>(tile);
  }
}

template <typename V>
void attention_tile_lanes(const AttentionTile& tile) {
  if (tile.layout->type == DType::kF32) return attend_tile_of<V, DType::kF32>(tile);
  attend_tile_of<V, DType::kF16>(tile);
}

}  // namespace shoal::tensor

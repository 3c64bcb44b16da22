// The attention kernel over KV pages, written once over a vector set V.
//
// A tile has 1, 2, 4 or 8 queries of one KV head. Page by page: the scores of 16 positions are one
// vector (keys lie with 16 positions side by side, so a score needs no sum across lanes), then the
// running maximum m, sum l and output o of online softmax (Milakov and Gimelshein 2018):
//   m' = max(m, scores), o = o * exp(m - m') + sum of exp(score - m') * value, l likewise.
// Positions are cut at multiples of a fixed length into chunks, each with an m, l and o of its own
// (a part); parts are merged in order of position by the same formula. So parts may be computed by
// different workers, with the bits that one worker gives that computes them one after another.
// 8-bit keys and values: a key's scale multiplies its score, a value's scale its weight.
// A query's arithmetic is the same in tiles of every width: positions that only its neighbours see
// add an exact zero, unless the value there is not finite: the query's output then is not either.
// Thread rule: pure functions; scratch belongs to the caller.
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
[[gnu::always_inline]] inline int64_t attention_tile_floats(const KvLayout& layout) {
  return kTileTokens * (layout.head_dim + layout.page_tokens + 2 * attention_part_floats(layout));
}

template <typename V, DType Type>
inline typename V::F load_kv(const std::byte* page, int64_t element) {
  if constexpr (Type == DType::kF32) {
    return V::load(reinterpret_cast<const float*>(page) + element);
  } else if constexpr (Type == DType::kI8) {
    return V::load_i8(page + element);
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
  for (int v = 0; v < Vectors; ++v) {
    auto scale = V::set(1.0F);
    if constexpr (Type == DType::kI8) {
      scale = V::load_f16(page + layout.key_scale_offset(tile.kv_head, slot + 16 * v));
    }
    for (int q = 0; q < Queries; ++q) {
      const auto score = Type == DType::kI8 ? V::mul(acc[q][v], scale) : acc[q][v];
      V::store(scores + q * layout.page_tokens + slot + 16 * v, score);
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
  float* outputs = nullptr;  // [Queries] parts: o, then m and l
  int64_t part_floats = 0;
  std::array<float, Queries> maximum{};
  std::array<float, Queries> sum{};
  std::array<float, Queries> rescale{};

  float* part(int q) const { return outputs + q * part_floats; }
};

// outputs[q][dims] = outputs * rescale + sum over slots of weights * values, 16 dims per vector.
template <typename V, DType Type, int Queries, int Vectors>
inline void add_values(const AttentionTile& tile, const std::byte* page, SlotRange slots,
                       int64_t dim, const AttentionState<Queries>& state) {
  const KvLayout& layout = *tile.layout;
  typename V::F acc[Queries][Vectors];
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) {
      const float* outputs = state.part(q) + dim + 16 * v;
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
      V::store(state.part(q) + dim + 16 * v, acc[q][v]);
    }
  }
}

// One page of a tile.
struct PageOfTile {
  const std::byte* bytes = nullptr;
  int64_t begin = 0;  // its first position
  SlotRange slots;
};

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Turns query q's scores of this page into weights and moves its maximum, sum and rescale on.
template <typename V, DType Type, int Queries>
inline void soften(const AttentionTile& tile, int q, const PageOfTile& page,
                   AttentionState<Queries>& state) {
  const SlotRange slots = page.slots;
  float* scores = state.scores + q * tile.layout->page_tokens;
  const int64_t begin = tile.begin[q] - page.begin;
  const int64_t end = tile.end[q] - page.begin;
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
    auto weights = exp_lanes<V>(V::sub(V::load(scores + s), V::set(shift)));
    sums = V::add(sums, weights);
    if constexpr (Type == DType::kI8) {
      const std::byte* scales = page.bytes + tile.layout->value_scale_offset(tile.kv_head, s);
      weights = V::mul(weights, V::load_f16(scales));
    }
    V::store(scores + s, weights);
  }
  state.rescale[q] = std::exp(state.maximum[q] - shift);
  state.sum[q] = state.sum[q] * state.rescale[q] + V::reduce_add(sums);
  state.maximum[q] = maximum;
}

template <typename V, DType Type, int Queries>
void attend_page(const AttentionTile& tile, const PageOfTile& page,
                 AttentionState<Queries>& state) {
  constexpr int kVectors = V::attention_vectors(Queries);
  const KvLayout& layout = *tile.layout;
  const SlotRange slots = page.slots;
  int64_t slot = slots.begin / 16 * 16;
  for (; slot + 16 * (kVectors - 1) < slots.end && slot + 16 * kVectors <= layout.page_tokens;
       slot += 16 * kVectors) {
    score_positions<V, Type, Queries, kVectors>(tile, page.bytes, slot, state.q_lanes,
                                                state.scores);
  }
  for (; slot < slots.end; slot += 16) {
    score_positions<V, Type, Queries, 1>(tile, page.bytes, slot, state.q_lanes, state.scores);
  }
  for (int q = 0; q < Queries; ++q) soften<V, Type, Queries>(tile, q, page, state);
  int64_t dim = 0;
  for (; dim + 16 * kVectors <= layout.value_stride(); dim += 16 * kVectors) {
    add_values<V, Type, Queries, kVectors>(tile, page.bytes, slots, dim, state);
  }
  for (; dim < layout.value_stride(); dim += 16) {
    add_values<V, Type, Queries, 1>(tile, page.bytes, slots, dim, state);
  }
}

// The parts of positions [begin, end), which lie in one chunk, into state.outputs.
template <typename V, DType Type, int Queries>
void attend_chunk(const AttentionTile& tile, SlotRange positions, AttentionState<Queries>& state) {
  const KvLayout& layout = *tile.layout;
  std::fill_n(state.outputs, Queries * state.part_floats, 0.0F);
  state.maximum.fill(kNone);
  state.sum.fill(0.0F);
  for (int64_t index = positions.begin / layout.page_tokens;
       index * layout.page_tokens < positions.end; ++index) {
    const int64_t first = index * layout.page_tokens;
    const SlotRange slots{std::max<int64_t>(positions.begin - first, 0),
                          std::min(positions.end - first, layout.page_tokens)};
    attend_page<V, Type, Queries>(tile, {tile.pages[static_cast<size_t>(index)], first, slots},
                                  state);
  }
  for (int q = 0; q < Queries; ++q) {
    state.part(q)[layout.value_stride()] = state.maximum[q];
    state.part(q)[layout.value_stride() + 1] = state.sum[q];
  }
}

// total = total and part together; value_stride is a multiple of 16.
template <typename V>
inline void merge_part(const float* part, int64_t value_stride, float* total) {
  const float maximum = std::max(total[value_stride], part[value_stride]);
  const float shift = maximum == kNone ? 0.0F : maximum;
  const float old_factor = std::exp(total[value_stride] - shift);
  const float new_factor = std::exp(part[value_stride] - shift);
  for (int64_t d = 0; d < value_stride; d += 16) {
    const auto old_values = V::mul(V::load(total + d), V::set(old_factor));
    V::store(total + d, V::fma(V::load(part + d), V::set(new_factor), old_values));
  }
  total[value_stride] = maximum;
  total[value_stride + 1] =
      total[value_stride + 1] * old_factor + part[value_stride + 1] * new_factor;
}

[[gnu::always_inline]] inline void clear_part(int64_t value_stride, float* part) {
  std::fill_n(part, value_stride, 0.0F);
  part[value_stride] = kNone;
  part[value_stride + 1] = 0.0F;
}

[[gnu::always_inline]] inline void store_output(const float* total, const KvLayout& layout,
                                                float* out) {
  const float sum = total[layout.value_stride() + 1];
  const float inverse = sum == 0.0F ? 0.0F : 1.0F / sum;
  for (int64_t d = 0; d < layout.head_dim; ++d) out[d] = total[d] * inverse;
}

template <typename V>
void merge_attention_lanes(const AttentionMerge& merge) {
  const KvLayout& layout = *merge.layout;
  clear_part(layout.value_stride(), merge.total);
  for (int64_t i = 0; i < merge.count; ++i) {
    merge_part<V>(merge.parts + i * attention_part_floats(layout), layout.value_stride(),
                  merge.total);
  }
  store_output(merge.total, layout, merge.out);
}

template <typename V, int Queries>
AttentionState<Queries> start_tile(const AttentionTile& tile) {
  const KvLayout& layout = *tile.layout;
  AttentionState<Queries> state;
  state.q_lanes = reinterpret_cast<float*>(tile.scratch.data());
  state.scores = state.q_lanes + Queries * layout.head_dim;
  state.outputs = state.scores + Queries * layout.page_tokens;
  state.part_floats = attention_part_floats(layout);
  for (int64_t d = 0; d < layout.head_dim; ++d) {
    for (int q = 0; q < Queries; ++q) state.q_lanes[d * Queries + q] = tile.q[q][d] * tile.scale;
  }
  return state;
}

template <typename V, DType Type, int Queries>
void attend_tile(const AttentionTile& tile) {
  const KvLayout& layout = *tile.layout;
  const int64_t chunk = attention_chunk(layout);
  AttentionState<Queries> state = start_tile<V, Queries>(tile);
  const int64_t begin = *std::min_element(tile.begin.begin(), tile.begin.begin() + Queries);
  const int64_t end = *std::max_element(tile.end.begin(), tile.end.begin() + Queries);
  if (tile.chunk >= 0) {
    attend_chunk<V, Type, Queries>(
        tile, {std::max(begin, tile.chunk * chunk), std::min(end, (tile.chunk + 1) * chunk)},
        state);
    for (int q = 0; q < Queries; ++q) {
      std::copy_n(state.part(q), state.part_floats, tile.out[q]);
    }
    return;
  }
  float* totals = state.outputs + Queries * state.part_floats;
  for (int q = 0; q < Queries; ++q)
    clear_part(layout.value_stride(), totals + q * state.part_floats);
  for (int64_t c = begin / chunk; c * chunk < end; ++c) {
    attend_chunk<V, Type, Queries>(
        tile, {std::max(begin, c * chunk), std::min(end, (c + 1) * chunk)}, state);
    for (int q = 0; q < Queries; ++q) {
      merge_part<V>(state.part(q), layout.value_stride(), totals + q * state.part_floats);
    }
  }
  for (int q = 0; q < Queries; ++q) {
    store_output(totals + q * state.part_floats, layout, tile.out[q]);
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
  if (tile.layout->type == DType::kI8) return attend_tile_of<V, DType::kI8>(tile);
  attend_tile_of<V, DType::kF16>(tile);
}

}  // namespace shoal::tensor

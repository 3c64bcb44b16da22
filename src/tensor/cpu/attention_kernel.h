// The attention kernel over KV pages, written once over a vector set V.
//
// A tile has up to 64 queries of one KV head, in blocks of as many as the registers hold. Positions
// are cut at multiples of a fixed length into chunks. In a chunk, all scores come first (16
// positions are one vector: keys lie with 16 positions side by side, so a score needs no sum across
// lanes), then a softmax over them with their maximum m and sum l, then the output o, the sum of
// exp(score - m) * value. These three are the chunk's part, and parts are merged in order of
// position, as in online softmax (Milakov and Gimelshein 2018):
//   m' = max(m1, m2), o' = o1 * exp(m1 - m') + o2 * exp(m2 - m'), l' likewise.
// So parts may be computed by different workers, with the bits that one worker gives that computes
// them one after another. A page of halves that several blocks read is turned into floats once.
// 8-bit keys and values are multiplied as integers (attention_codes.h); a key's scale multiplies
// its score, a value's scale its weight. A query's arithmetic is the same in tiles of every width,
// and takes in no position that the query does not see: what is not finite reaches those that see
// it alone. Thread rule: pure functions; scratch belongs to the caller.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "tensor/cpu/attention_codes.h"
#include "tensor/cpu/attention_work.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/vector_kernel.h"

namespace shoal::tensor {

constexpr float kNone = -std::numeric_limits<float>::infinity();

template <typename V, DType Type>
inline typename V::F load_kv(const std::byte* elements, int64_t element) {
  if constexpr (Type == DType::kF32) {
    return V::load(reinterpret_cast<const float*>(elements) + element);
  } else {
    return V::load_f16(elements + element * 2);
  }
}

[[gnu::always_inline]] constexpr int64_t kv_element_bytes(DType type) {
  if (type == DType::kI8) return 1;
  return type == DType::kF16 ? 2 : 4;
}

// Elements [begin, end) as floats at their places in `to`; both are multiples of 16.
template <typename V, DType Type>
inline void widen(const Stream& elements, SlotRange range, float* to) {
  constexpr int64_t kBytes = kv_element_bytes(Type);
  for (int64_t i = range.begin; i < range.end; i += 16) {
    elements.prefetch(i * kBytes, 16 * kBytes);
    V::store(to + i, load_kv<V, Type>(elements.now, i));
  }
}

// What `widen` made, with nothing ahead.
[[gnu::always_inline]] inline Stream widened_stream(const AttentionWork& work) {
  const auto* bytes = reinterpret_cast<const std::byte*>(work.page);
  return {bytes, bytes};
}

// Scores of `Vectors` vectors of positions from `slot` on; `keys` is [head_dim][page_tokens].
template <typename V, DType Type, int Queries, int Vectors>
inline void score_positions(const AttentionWork& work, const Stream& keys, int64_t slot,
                            const float* queries, float* rows) {
  constexpr int64_t kBytes = kv_element_bytes(Type);
  typename V::F acc[Queries][Vectors];
  for (auto& row : acc) {
    for (auto& lanes : row) lanes = V::set(0.0F);
  }
  const int64_t query_stride = work.layout.value_stride();
  int64_t element = slot;
  for (int64_t d = 0; d < work.layout.head_dim; ++d, element += work.layout.page_tokens) {
    keys.prefetch(element * kBytes, 16 * Vectors * kBytes);
    typename V::F lanes[Vectors];
    for (int v = 0; v < Vectors; ++v) lanes[v] = load_kv<V, Type>(keys.now, element + 16 * v);
    for (int q = 0; q < Queries; ++q) {
      const auto query = V::set(queries[q * query_stride + d]);
      for (int v = 0; v < Vectors; ++v) acc[q][v] = V::fma(lanes[v], query, acc[q][v]);
    }
  }
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) {
      V::store(rows + q * work.row_floats + slot + 16 * v, acc[q][v]);
    }
  }
}

// A block's scores of the slots, rounded out to whole vectors; `rows` has the page's first column.
template <typename V, DType Type, int Queries>
inline void score_block(const AttentionWork& work, const Stream& keys, SlotRange slots,
                        const float* queries, float* rows) {
  const SlotRange vectors{slots.begin / 16 * 16, slots.end};
  for_each_vectors<V, Queries>(vectors, work.layout.page_tokens, [&]<int Vectors>(int64_t slot) {
    score_positions<V, Type, Queries, Vectors>(work, keys, slot, queries, rows);
  });
}

// Whether the tile's blocks read a page's floats instead of its elements.
template <typename V, DType Type>
[[gnu::always_inline]] inline bool is_widened(const AttentionTile& tile) {
  return Type != DType::kF32 && tile.queries > V::kAttentionQueries;
}

template <typename V, DType Type>
void score_page(const AttentionWork& work, const PageOfTile& page, const Stream& keys) {
  const KvLayout& layout = work.layout;
  const bool widened = is_widened<V, Type>(work.tile);
  if (widened) widen<V, Type>(keys, {0, layout.head_dim * layout.page_tokens}, work.page);
  for_each_block<V>(work.tile.queries, [&]<int Queries>(int64_t first) {
    const SlotRange slots = work.seen_by_some(first, Queries, page);
    const float* queries = work.query(first);
    float* rows = work.row(first) + page.column;
    if (widened) {
      score_block<V, DType::kF32, Queries>(work, widened_stream(work), slots, queries, rows);
    } else {
      score_block<V, Type, Queries>(work, keys, slots, queries, rows);
    }
  });
}

// Turns a query's scores of a chunk into weights; writes their maximum and sum.
template <typename V>
inline void soften(float* row, SlotRange seen, float* maximum, float* sum) {
  *maximum = kNone;
  *sum = 0.0F;
  if (seen.begin >= seen.end) return;
  const int64_t begin = seen.begin / 16 * 16;
  const int64_t last = (seen.end - 1) / 16 * 16;
  for (const int64_t s : {begin, last}) {
    V::store(row + s, V::keep_lanes(V::load(row + s), seen.begin - s, seen.end - s, kNone));
  }
  auto maxima = V::set(kNone);
  for (int64_t s = begin; s <= last; s += 16) maxima = V::max(maxima, V::load(row + s));
  *maximum = V::reduce_max(maxima);
  const auto shift = V::set(*maximum == kNone ? 0.0F : *maximum);
  auto sums = V::set(0.0F);
  for (int64_t s = begin; s <= last; s += 16) {
    const auto weights = exp_lanes_to_104<V>(V::sub(V::load(row + s), shift));
    sums = V::add(sums, weights);
    V::store(row + s, weights);
  }
  *sum = V::reduce_add(sums);
}

// parts[dims] += weights * values over the slots; `values` is [page_tokens][value_stride].
template <typename V, DType Type, int Queries, int Vectors>
inline void add_values(const AttentionWork& work, const Stream& values, SlotRange slots,
                       const float* rows, float* parts) {
  constexpr int64_t kBytes = kv_element_bytes(Type);
  typename V::F acc[Queries][Vectors];
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) acc[q][v] = V::load(parts + q * work.part_floats + 16 * v);
  }
  const int64_t stride = work.layout.value_stride();
  int64_t element = slots.begin * stride;
  for (int64_t s = slots.begin; s < slots.end; ++s, element += stride) {
    values.prefetch(element * kBytes, 16 * Vectors * kBytes);
    typename V::F lanes[Vectors];
    for (int v = 0; v < Vectors; ++v) lanes[v] = load_kv<V, Type>(values.now, element + 16 * v);
    for (int q = 0; q < Queries; ++q) {
      const auto weight = V::set(rows[q * work.row_floats + s]);
      for (int v = 0; v < Vectors; ++v) acc[q][v] = V::fma(lanes[v], weight, acc[q][v]);
    }
  }
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) V::store(parts + q * work.part_floats + 16 * v, acc[q][v]);
  }
}

// Slots that all `Queries` queries from `first` on see.
template <typename V, DType Type, int Queries>
inline void add_slots(const AttentionWork& work, const Stream& values, SlotRange slots,
                      int64_t first, int64_t column) {
  if (slots.begin >= slots.end) return;
  const float* rows = work.row(first) + column;
  const SlotRange dims{0, work.layout.value_stride()};
  for_each_vectors<V, Queries>(dims, dims.end, [&]<int Vectors>(int64_t dim) {
    add_values<V, Type, Queries, Vectors>(work, values.from(dim * kv_element_bytes(Type)), slots,
                                          rows, work.part(first) + dim);
  });
}

// A block's values of a page: together where all its queries see a slot, one by one elsewhere.
template <typename V, DType Type, int Queries>
inline void add_block(const AttentionWork& work, const Stream& values, int64_t first,
                      const PageOfTile& page) {
  SlotRange common{0, work.layout.page_tokens};
  for (int64_t q = first; q < first + Queries; ++q) {
    const SlotRange slots = work.seen(q, page);
    common.begin = slots.begin > common.begin ? slots.begin : common.begin;
    common.end = slots.end < common.end ? slots.end : common.end;
  }
  const bool has_common = common.begin < common.end;
  for (int64_t q = first; q < first + Queries; ++q) {
    const SlotRange slots = work.seen(q, page);
    const SlotRange before{slots.begin, has_common ? common.begin : slots.end};
    add_slots<V, Type, 1>(work, values, before, q, page.column);
  }
  if (!has_common) return;
  add_slots<V, Type, Queries>(work, values, common, first, page.column);
  for (int64_t q = first; q < first + Queries; ++q) {
    add_slots<V, Type, 1>(work, values, {common.end, work.seen(q, page).end}, q, page.column);
  }
}

template <typename V, DType Type>
void add_page(const AttentionWork& work, const PageOfTile& page, const Stream& values) {
  const bool widened = is_widened<V, Type>(work.tile);
  if (widened) {
    const SlotRange slots = work.seen_by_some(0, work.tile.queries, page);
    const int64_t stride = work.layout.value_stride();
    widen<V, Type>(values, {slots.begin * stride, slots.end * stride}, work.page);
  }
  for_each_block<V>(work.tile.queries, [&]<int Queries>(int64_t first) {
    if (widened) {
      add_block<V, DType::kF32, Queries>(work, widened_stream(work), first, page);
    } else {
      add_block<V, Type, Queries>(work, values, first, page);
    }
  });
}

// Where the keys and values of a tile's head are in a page.
template <DType Type>
struct HeadInPage {
  const KvLayout& layout;
  int64_t head = 0;

  [[gnu::always_inline]] const std::byte* keys(const std::byte* page) const {
    return page + layout.key_offset(head, 0, 0) * kv_element_bytes(Type);
  }
  [[gnu::always_inline]] const std::byte* values(const std::byte* page) const {
    return page + layout.value_offset(head, 0, 0) * kv_element_bytes(Type);
  }
  // What nothing before it has prefetched.
  [[gnu::always_inline]] void prefetch_keys(const std::byte* page) const {
    const std::byte* first = keys_ahead(page);
    Stream{first, first}.prefetch(0,
                                  layout.key_dims() * layout.page_tokens * kv_element_bytes(Type));
  }
  // The scales, if there are any, are asked for at once.
  [[gnu::always_inline]] const std::byte* keys_ahead(const std::byte* page) const {
    if constexpr (Type == DType::kI8) prefetch_scales(page + layout.key_scale_offset(head, 0));
    return keys(page);
  }
  [[gnu::always_inline]] const std::byte* values_ahead(const std::byte* page) const {
    if constexpr (Type == DType::kI8) prefetch_scales(page + layout.value_scale_offset(head, 0));
    return values(page);
  }

 private:
  [[gnu::always_inline]] void prefetch_scales(const std::byte* scales) const {
    Stream{scales, scales}.prefetch(0, 2 * layout.page_tokens);
  }
};

// The parts of positions [begin, end), which lie in the chunk that starts at `start`. `after` is
// the page whose keys are read after them, if it is known.
template <typename V, DType Type>
void attend_chunk(const AttentionWork& work, int64_t start, SlotRange positions,
                  const std::byte* after) {
  const AttentionTile& tile = work.tile;
  const int64_t chunk = attention_chunk(work.layout);
  const int64_t value_stride = work.layout.value_stride();
  const HeadInPage<Type> head{work.layout, tile.kv_head};
  const std::byte* first =
      tile.pages[static_cast<size_t>(positions.begin / work.layout.page_tokens)];
  for_each_page(tile, start, positions, [&](const PageOfTile& page) {
    const Stream keys{head.keys(page.bytes),
                      page.next != nullptr ? head.keys_ahead(page.next) : head.values_ahead(first)};
    if constexpr (Type == DType::kI8) {
      score_codes<V>(work, page, keys);
    } else {
      score_page<V, Type>(work, page, keys);
    }
  });
  for (int64_t q = 0; q < tile.queries; ++q) {
    const auto lane = static_cast<size_t>(q);
    const SlotRange seen{tile.begin[lane] > start ? tile.begin[lane] - start : 0,
                         tile.end[lane] - start < chunk ? tile.end[lane] - start : chunk};
    float* part = work.part(q);
    for (int64_t d = 0; d < value_stride; d += 16) V::store(part + d, V::set(0.0F));
    soften<V>(work.row(q), seen, part + value_stride, part + value_stride + 1);
  }
  for_each_page(tile, start, positions, [&](const PageOfTile& page) {
    Stream values{head.values(page.bytes), head.values(page.bytes)};
    if (page.next != nullptr) {
      values.ahead = head.values_ahead(page.next);
    } else if (after != nullptr) {
      values.ahead = head.keys_ahead(after);
    }
    if constexpr (Type == DType::kI8) {
      add_codes<V>(work, page, values);
    } else {
      add_page<V, Type>(work, page, values);
    }
  });
}

// Whether a part has no position: none of its query's lay in its chunk.
[[gnu::always_inline]] inline bool is_empty_part(int64_t value_stride, const float* part) {
  return part[value_stride] == kNone && part[value_stride + 1] == 0.0F;
}

// total = total and part together; value_stride is a multiple of 16. Empty parts change no bit.
template <typename V>
inline void merge_part(const float* part, int64_t value_stride, float* total) {
  if (is_empty_part(value_stride, part)) return;
  if (is_empty_part(value_stride, total)) {
    for (int64_t d = 0; d < value_stride; d += 16) V::store(total + d, V::load(part + d));
    total[value_stride] = part[value_stride];
    total[value_stride + 1] = part[value_stride + 1];
    return;
  }
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

template <typename V>
inline void store_output(const float* total, const KvLayout& layout, float* out) {
  const float sum = total[layout.value_stride() + 1];
  const auto inverse = V::set(sum == 0.0F ? 0.0F : 1.0F / sum);
  for (int64_t d = 0; d < layout.head_dim; d += 16) {
    const int64_t left = layout.head_dim - d;
    V::store_part(out + d, V::mul(V::load(total + d), inverse), left < 16 ? left : 16);
  }
}

template <typename V>
void merge_attention_lanes(const AttentionMerge& merge) {
  const KvLayout& layout = *merge.layout;
  clear_part(layout.value_stride(), merge.total);
  for (int64_t i = 0; i < merge.count; ++i) {
    merge_part<V>(merge.parts + i * attention_part_floats(layout), layout.value_stride(),
                  merge.total);
  }
  store_output<V>(merge.total, layout, merge.out);
}

template <typename V, DType Type>
AttentionWork start_tile(const AttentionTile& tile) {
  const AttentionWork work = lay_out_scratch(tile);
  const KvLayout& layout = work.layout;
  const auto scale = V::set(tile.scale);
  for (int64_t i = 0; i < tile.queries; ++i) {
    const float* from = tile.q[static_cast<size_t>(i)];
    for (int64_t d = 0; d < layout.head_dim; d += 16) {
      V::store(work.query(i) + d, V::mul(V::load_part(from + d, layout.head_dim - d), scale));
    }
  }
  if constexpr (Type == DType::kI8) code_queries<V>(work);
  return work;
}

// Positions that some query of the tile sees.
[[gnu::always_inline]] inline SlotRange tile_positions(const AttentionTile& tile) {
  SlotRange positions{tile.begin[0], tile.end[0]};
  for (size_t q = 1; q < static_cast<size_t>(tile.queries); ++q) {
    positions.begin = tile.begin[q] < positions.begin ? tile.begin[q] : positions.begin;
    positions.end = tile.end[q] > positions.end ? tile.end[q] : positions.end;
  }
  return positions;
}

template <typename V, DType Type>
void attend_tile(const AttentionTile& tile) {
  const int64_t chunk = attention_chunk(*tile.layout);
  const int64_t value_stride = tile.layout->value_stride();
  const SlotRange all = tile_positions(tile);
  const int64_t first = tile.chunk * chunk > all.begin ? tile.chunk * chunk : all.begin;
  HeadInPage<Type>{*tile.layout, tile.kv_head}.prefetch_keys(
      tile.pages[static_cast<size_t>(first / tile.layout->page_tokens)]);
  const AttentionWork work = start_tile<V, Type>(tile);
  const auto attend = [&](int64_t c) {
    const int64_t start = c * chunk;
    const SlotRange positions{all.begin > start ? all.begin : start,
                              all.end < start + chunk ? all.end : start + chunk};
    const bool is_last = tile.chunk >= 0 || all.end <= start + chunk;
    attend_chunk<V, Type>(
        work, start, positions,
        is_last ? nullptr
                : tile.pages[static_cast<size_t>(positions.end / work.layout.page_tokens)]);
  };
  if (tile.chunk >= 0) {
    attend(tile.chunk);
    for (int64_t q = 0; q < tile.queries; ++q) {
      std::copy_n(work.part(q), work.part_floats, tile.out[static_cast<size_t>(q)]);
    }
    return;
  }
  for (int64_t q = 0; q < tile.queries; ++q) clear_part(value_stride, work.total(q));
  for (int64_t c = all.begin / chunk; c * chunk < all.end; ++c) {
    attend(c);
    for (int64_t q = 0; q < tile.queries; ++q) {
      merge_part<V>(work.part(q), value_stride, work.total(q));
    }
  }
  for (int64_t q = 0; q < tile.queries; ++q) {
    store_output<V>(work.total(q), work.layout, tile.out[static_cast<size_t>(q)]);
  }
}

template <typename V>
void attention_tile_lanes(const AttentionTile& tile) {
  if (tile.layout->type == DType::kF32) return attend_tile<V, DType::kF32>(tile);
  if (tile.layout->type == DType::kI8) return attend_tile<V, DType::kI8>(tile);
  attend_tile<V, DType::kF16>(tile);
}

}  // namespace shoal::tensor

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
// them one after another. A page that several blocks read is turned into floats once.
// 8-bit keys and values: a key's scale multiplies its score, a value's scale its weight.
// A query's arithmetic is the same in tiles of every width, and takes in no position that the query
// does not see: what is not finite reaches those that see it alone.
// Thread rule: pure functions; scratch belongs to the caller.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "tensor/cpu/kernels.h"
#include "tensor/cpu/vector_kernel.h"

namespace shoal::tensor {

// A query's row of scores: a chunk, and a vector more so that rows do not share cache sets.
[[gnu::always_inline]] inline int64_t score_row_floats(const KvLayout& layout) {
  return attention_chunk(layout) + KvLayout::kLanes;
}

// A page's keys or values of one head, as floats.
[[gnu::always_inline]] inline int64_t widened_page_floats(const KvLayout& layout) {
  return layout.page_tokens * layout.value_stride();
}

// Scratch of one tile, in floats.
[[gnu::always_inline]] inline int64_t attention_tile_floats(const KvLayout& layout) {
  const int64_t of_query =
      layout.value_stride() + score_row_floats(layout) + 2 * attention_part_floats(layout);
  return widened_page_floats(layout) + AttentionTile::kQueriesMax * of_query;
}

constexpr float kNone = -std::numeric_limits<float>::infinity();

// Positions in a page or in a row of scores.
struct SlotRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// One page of a tile.
struct PageOfTile {
  const std::byte* bytes = nullptr;
  int64_t begin = 0;   // its first position
  int64_t column = 0;  // of the score rows, of its first position
};

// The working memory of a tile, and what all its functions need.
struct AttentionWork {
  const AttentionTile& tile;
  const KvLayout& layout;
  float* page = nullptr;     // [widened_page_floats]
  float* parts = nullptr;    // [queries] parts of the chunk
  float* totals = nullptr;   // [queries] parts merged
  float* scores = nullptr;   // [queries, score_row_floats], then the weights
  float* queries = nullptr;  // [queries, value_stride], scaled
  int64_t part_floats = 0;
  int64_t row_floats = 0;

  [[gnu::always_inline]] float* part(int64_t query) const { return parts + query * part_floats; }
  [[gnu::always_inline]] float* total(int64_t query) const { return totals + query * part_floats; }
  [[gnu::always_inline]] float* row(int64_t query) const { return scores + query * row_floats; }
  [[gnu::always_inline]] float* query(int64_t index) const {
    return queries + index * layout.value_stride();
  }
  // The slots of a page that a query sees; {0, 0}: none.
  [[gnu::always_inline]] SlotRange seen(int64_t query, const PageOfTile& page_of_tile) const {
    const int64_t end = tile.end[static_cast<size_t>(query)] - page_of_tile.begin;
    const int64_t begin = tile.begin[static_cast<size_t>(query)] - page_of_tile.begin;
    const int64_t last = end < layout.page_tokens ? end : layout.page_tokens;
    const int64_t first = begin > 0 ? begin : 0;
    return last > first ? SlotRange{first, last} : SlotRange{};
  }
  // From the first to the last slot of a page that one of the queries sees.
  [[gnu::always_inline]] SlotRange seen_by_some(int64_t first, int64_t count,
                                                const PageOfTile& page_of_tile) const {
    SlotRange some{layout.page_tokens, 0};
    for (int64_t q = first; q < first + count; ++q) {
      const SlotRange slots = seen(q, page_of_tile);
      if (slots.begin == slots.end) continue;
      some.begin = slots.begin < some.begin ? slots.begin : some.begin;
      some.end = slots.end > some.end ? slots.end : some.end;
    }
    return some;
  }
};

// Calls fn<Queries>(first query) for each block of the tile: as many as V takes, then 4, 3, 2, 1.
// Three is worth one of its own: a token of a model with three heads to a KV head has so many.
template <typename V, typename Fn>
[[gnu::always_inline]] inline void for_each_block(int64_t queries, Fn fn) {
  int64_t first = 0;
  for (; queries - first >= V::kAttentionQueries; first += V::kAttentionQueries) {
    fn.template operator()<V::kAttentionQueries>(first);
  }
  if constexpr (V::kAttentionQueries > 4) {
    if (queries - first >= 4) {
      fn.template operator()<4>(first);
      first += 4;
    }
  }
  if (queries - first == 3) return fn.template operator()<3>(first);
  if (queries - first >= 2) {
    fn.template operator()<2>(first);
    first += 2;
  }
  if (queries - first >= 1) fn.template operator()<1>(first);
}

template <typename V, DType Type>
inline typename V::F load_kv(const std::byte* elements, int64_t element) {
  if constexpr (Type == DType::kF32) {
    return V::load(reinterpret_cast<const float*>(elements) + element);
  } else if constexpr (Type == DType::kI8) {
    return V::load_i8(elements + element);
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
inline void widen(const std::byte* elements, SlotRange range, float* to) {
  for (int64_t i = range.begin; i < range.end; i += 16) {
    V::store(to + i, load_kv<V, Type>(elements, i));
  }
}

// row[slots] times the slots' scales, by whole vectors: lanes beside the slots are never read.
template <typename V>
inline void scale_slots(const std::byte* scales, SlotRange slots, float* row) {
  for (int64_t s = slots.begin / 16 * 16; s < slots.end; s += 16) {
    V::store(row + s, V::mul(V::load(row + s), V::load_f16(scales + 2 * s)));
  }
}

// Scores of `Vectors` vectors of positions from `slot` on; `keys` is [head_dim][page_tokens].
template <typename V, DType Type, int Queries, int Vectors>
inline void score_positions(const AttentionWork& work, const std::byte* keys, int64_t slot,
                            const float* queries, float* rows) {
  typename V::F acc[Queries][Vectors];
  for (auto& row : acc) {
    for (auto& lanes : row) lanes = V::set(0.0F);
  }
  const int64_t query_stride = work.layout.value_stride();
  int64_t element = slot;
  for (int64_t d = 0; d < work.layout.head_dim; ++d, element += work.layout.page_tokens) {
    typename V::F lanes[Vectors];
    for (int v = 0; v < Vectors; ++v) lanes[v] = load_kv<V, Type>(keys, element + 16 * v);
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
inline void score_block(const AttentionWork& work, const std::byte* keys, SlotRange slots,
                        const float* queries, float* rows) {
  constexpr int kVectors = V::attention_vectors(Queries);
  int64_t slot = slots.begin / 16 * 16;
  for (; slot + 16 * (kVectors - 1) < slots.end && slot + 16 * kVectors <= work.layout.page_tokens;
       slot += 16 * kVectors) {
    score_positions<V, Type, Queries, kVectors>(work, keys, slot, queries, rows);
  }
  for (; slot < slots.end; slot += 16) {
    score_positions<V, Type, Queries, 1>(work, keys, slot, queries, rows);
  }
}

// Whether the tile's blocks read a page's floats instead of its elements.
template <typename V, DType Type>
[[gnu::always_inline]] inline bool is_widened(const AttentionTile& tile) {
  return Type != DType::kF32 && tile.queries > V::kAttentionQueries;
}

template <typename V, DType Type>
void score_page(const AttentionWork& work, const PageOfTile& page) {
  const KvLayout& layout = work.layout;
  const int64_t head = work.tile.kv_head;
  const std::byte* keys = page.bytes + layout.key_offset(head, 0, 0) * kv_element_bytes(Type);
  const bool widened = is_widened<V, Type>(work.tile);
  if (widened) widen<V, Type>(keys, {0, layout.head_dim * layout.page_tokens}, work.page);
  for_each_block<V>(work.tile.queries, [&]<int Queries>(int64_t first) {
    const SlotRange slots = work.seen_by_some(first, Queries, page);
    const float* queries = work.query(first);
    float* rows = work.row(first) + page.column;
    if (widened) {
      score_block<V, DType::kF32, Queries>(work, reinterpret_cast<const std::byte*>(work.page),
                                           slots, queries, rows);
    } else {
      score_block<V, Type, Queries>(work, keys, slots, queries, rows);
    }
    if constexpr (Type == DType::kI8) {
      const std::byte* scales = page.bytes + layout.key_scale_offset(head, 0);
      for (int q = 0; q < Queries; ++q) {
        scale_slots<V>(scales, slots, rows + q * work.row_floats);
      }
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
inline void add_values(const AttentionWork& work, const std::byte* values, SlotRange slots,
                       const float* rows, float* parts) {
  typename V::F acc[Queries][Vectors];
  for (int q = 0; q < Queries; ++q) {
    for (int v = 0; v < Vectors; ++v) acc[q][v] = V::load(parts + q * work.part_floats + 16 * v);
  }
  const int64_t stride = work.layout.value_stride();
  int64_t element = slots.begin * stride;
  for (int64_t s = slots.begin; s < slots.end; ++s, element += stride) {
    typename V::F lanes[Vectors];
    for (int v = 0; v < Vectors; ++v) lanes[v] = load_kv<V, Type>(values, element + 16 * v);
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
inline void add_slots(const AttentionWork& work, const std::byte* values, SlotRange slots,
                      int64_t first, int64_t column) {
  if (slots.begin >= slots.end) return;
  constexpr int kVectors = V::attention_vectors(Queries);
  const float* rows = work.row(first) + column;
  float* parts = work.part(first);
  int64_t dim = 0;
  for (; dim + 16 * kVectors <= work.layout.value_stride(); dim += 16 * kVectors) {
    add_values<V, Type, Queries, kVectors>(work, values + dim * kv_element_bytes(Type), slots, rows,
                                           parts + dim);
  }
  for (; dim < work.layout.value_stride(); dim += 16) {
    add_values<V, Type, Queries, 1>(work, values + dim * kv_element_bytes(Type), slots, rows,
                                    parts + dim);
  }
}

// A block's values of a page: together where all its queries see a slot, one by one elsewhere.
template <typename V, DType Type, int Queries>
inline void add_block(const AttentionWork& work, const std::byte* values, int64_t first,
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
void add_page(const AttentionWork& work, const PageOfTile& page) {
  const KvLayout& layout = work.layout;
  const int64_t head = work.tile.kv_head;
  const std::byte* values = page.bytes + layout.value_offset(head, 0, 0) * kv_element_bytes(Type);
  const bool widened = is_widened<V, Type>(work.tile);
  if (widened) {
    const SlotRange slots = work.seen_by_some(0, work.tile.queries, page);
    const int64_t stride = layout.value_stride();
    widen<V, Type>(values, {slots.begin * stride, slots.end * stride}, work.page);
  }
  for_each_block<V>(work.tile.queries, [&]<int Queries>(int64_t first) {
    if constexpr (Type == DType::kI8) {
      const std::byte* scales = page.bytes + layout.value_scale_offset(head, 0);
      for (int64_t q = first; q < first + Queries; ++q) {
        scale_slots<V>(scales, work.seen(q, page), work.row(q) + page.column);
      }
    }
    if (widened) {
      add_block<V, DType::kF32, Queries>(work, reinterpret_cast<const std::byte*>(work.page), first,
                                         page);
    } else {
      add_block<V, Type, Queries>(work, values, first, page);
    }
  });
}

// Calls fn(page, the page after it or null) for the pages that hold positions [begin, end) of the
// chunk that starts at `start`.
template <typename Fn>
[[gnu::always_inline]] inline void for_each_page(const AttentionTile& tile, int64_t start,
                                                 SlotRange positions, Fn fn) {
  const int64_t page_tokens = tile.layout->page_tokens;
  for (int64_t index = positions.begin / page_tokens; index * page_tokens < positions.end;
       ++index) {
    const int64_t begin = index * page_tokens;
    const bool is_last = begin + page_tokens >= positions.end;
    fn(PageOfTile{tile.pages[static_cast<size_t>(index)], begin, begin - start},
       is_last ? nullptr : tile.pages[static_cast<size_t>(index) + 1]);
  }
}

// A head's keys or values are a few KiB: the processor's own prefetching has hardly begun when they
// end. So those that are read next are asked for in time.
[[gnu::always_inline]] inline void prefetch(const std::byte* bytes, int64_t count) {
  constexpr int64_t kLine = 64;
  for (int64_t i = 0; i < count; i += kLine) __builtin_prefetch(bytes + i);
}

template <DType Type>
inline void prefetch_keys(const AttentionWork& work, const std::byte* page) {
  constexpr int64_t kBytes = kv_element_bytes(Type);
  const KvLayout& layout = work.layout;
  prefetch(page + layout.key_offset(work.tile.kv_head, 0, 0) * kBytes,
           layout.head_dim * layout.page_tokens * kBytes);
}

template <DType Type>
inline void prefetch_values(const AttentionWork& work, const std::byte* page) {
  constexpr int64_t kBytes = kv_element_bytes(Type);
  prefetch(page + work.layout.value_offset(work.tile.kv_head, 0, 0) * kBytes,
           widened_page_floats(work.layout) * kBytes);
}

// The parts of positions [begin, end), which lie in the chunk that starts at `start`.
template <typename V, DType Type>
void attend_chunk(const AttentionWork& work, int64_t start, SlotRange positions) {
  const AttentionTile& tile = work.tile;
  const int64_t chunk = attention_chunk(work.layout);
  const int64_t value_stride = work.layout.value_stride();
  const std::byte* first =
      tile.pages[static_cast<size_t>(positions.begin / work.layout.page_tokens)];
  for_each_page(tile, start, positions, [&](const PageOfTile& page, const std::byte* next) {
    next != nullptr ? prefetch_keys<Type>(work, next) : prefetch_values<Type>(work, first);
    score_page<V, Type>(work, page);
  });
  for (int64_t q = 0; q < tile.queries; ++q) {
    const auto lane = static_cast<size_t>(q);
    const SlotRange seen{tile.begin[lane] > start ? tile.begin[lane] - start : 0,
                         tile.end[lane] - start < chunk ? tile.end[lane] - start : chunk};
    float* part = work.part(q);
    for (int64_t d = 0; d < value_stride; d += 16) V::store(part + d, V::set(0.0F));
    soften<V>(work.row(q), seen, part + value_stride, part + value_stride + 1);
  }
  for_each_page(tile, start, positions, [&](const PageOfTile& page, const std::byte* next) {
    if (next != nullptr) prefetch_values<Type>(work, next);
    add_page<V, Type>(work, page);
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

template <typename V>
AttentionWork start_tile(const AttentionTile& tile) {
  const KvLayout& layout = *tile.layout;
  AttentionWork work{.tile = tile, .layout = layout};
  work.part_floats = attention_part_floats(layout);
  work.row_floats = score_row_floats(layout);
  work.page = reinterpret_cast<float*>(tile.scratch.data());
  work.parts = work.page + widened_page_floats(layout);
  work.totals = work.parts + AttentionTile::kQueriesMax * work.part_floats;
  work.scores = work.totals + AttentionTile::kQueriesMax * work.part_floats;
  work.queries = work.scores + AttentionTile::kQueriesMax * work.row_floats;
  const auto scale = V::set(tile.scale);
  for (int64_t i = 0; i < tile.queries; ++i) {
    const float* from = tile.q[static_cast<size_t>(i)];
    for (int64_t d = 0; d < layout.head_dim; d += 16) {
      V::store(work.query(i) + d, V::mul(V::load_part(from + d, layout.head_dim - d), scale));
    }
  }
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
  const AttentionWork work = start_tile<V>(tile);
  const int64_t chunk = attention_chunk(work.layout);
  const int64_t value_stride = work.layout.value_stride();
  const SlotRange all = tile_positions(tile);
  const auto attend = [&](int64_t c) {
    const int64_t start = c * chunk;
    attend_chunk<V, Type>(
        work, start,
        {all.begin > start ? all.begin : start, all.end < start + chunk ? all.end : start + chunk});
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

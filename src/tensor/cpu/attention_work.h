// AttentionWork: the memory of one attention tile, its pages, and which of their slots are seen.
//
// Thread rule: plain data; scratch belongs to the caller.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/cpu/kernels.h"

namespace shoal::tensor {

// A query's row of scores: a chunk, and a vector more so that rows do not share cache sets.
[[gnu::always_inline]] inline int64_t score_row_floats(const KvLayout& layout) {
  return attention_chunk(layout) + KvLayout::kLanes;
}

// A page's keys or values of one head, as floats.
[[gnu::always_inline]] inline int64_t widened_page_floats(const KvLayout& layout) {
  return layout.page_tokens * layout.value_stride();
}

// Queries that a block holds at most.
constexpr int64_t kBlockQueriesMax = 8;

// Scratch of one tile, in floats.
[[gnu::always_inline]] inline int64_t attention_tile_floats(const KvLayout& layout) {
  // Of a query: parts and totals, scores, its elements as floats and as codes, their factor.
  const int64_t of_query = 2 * attention_part_floats(layout) + score_row_floats(layout) +
                           layout.value_stride() + layout.value_stride() / 2 + 1;
  const int64_t of_block_query = layout.page_tokens / 2 + 1;
  return widened_page_floats(layout) + AttentionTile::kQueriesMax * of_query +
         kBlockQueriesMax * of_block_query;
}

// Positions in a page or in a row of scores.
struct SlotRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// One page of a tile.
struct PageOfTile {
  const std::byte* bytes = nullptr;
  const std::byte* next = nullptr;  // the page after it in the chunk, if any
  int64_t begin = 0;                // its first position
  int64_t column = 0;               // of the score rows, of its first position
};

// Bytes that are read now, and those that are read after them: while byte i of these is used, byte
// i of those is prefetched. A head's keys or values are a few KiB, where the processor's own
// prefetching has hardly begun when they end; and as many lines asked for at once would have to
// wait for each other.
struct Stream {
  const std::byte* now = nullptr;
  const std::byte* ahead = nullptr;  // = now: nothing

  [[gnu::always_inline]] Stream from(int64_t byte) const { return {now + byte, ahead + byte}; }
  [[gnu::always_inline]] void prefetch(int64_t first, int64_t count) const {
    constexpr int64_t kLine = 64;
    for (int64_t i = first; i < first + count; i += kLine) __builtin_prefetch(ahead + i);
  }
};

// Rows of numbers as 16-bit codes: a number is its code times its row's factor.
struct CodeRows {
  int16_t* codes = nullptr;  // [rows, stride]
  float* factors = nullptr;  // [rows]
  int64_t stride = 0;

  [[gnu::always_inline]] CodeRows from(int64_t row) const {
    return {codes + row * stride, factors + row, stride};
  }
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
  CodeRows query_codes{};    // [queries, value_stride]
  CodeRows weight_codes{};   // [queries of a block, page_tokens], of one page
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

// Scratch that is handed out from its beginning.
struct ScratchFloats {
  float* next = nullptr;

  [[gnu::always_inline]] float* take(int64_t floats) {
    float* taken = next;
    next += floats;
    return taken;
  }
  [[gnu::always_inline]] int16_t* take_codes(int64_t codes) {
    return reinterpret_cast<int16_t*>(take(codes / 2));
  }
};

[[gnu::always_inline]] inline AttentionWork lay_out_scratch(const AttentionTile& tile) {
  constexpr int64_t kQueries = AttentionTile::kQueriesMax;
  const KvLayout& layout = *tile.layout;
  const int64_t value_stride = layout.value_stride();
  AttentionWork work{.tile = tile, .layout = layout};
  work.part_floats = attention_part_floats(layout);
  work.row_floats = score_row_floats(layout);
  ScratchFloats scratch{reinterpret_cast<float*>(tile.scratch.data())};
  work.page = scratch.take(widened_page_floats(layout));
  work.parts = scratch.take(kQueries * work.part_floats);
  work.totals = scratch.take(kQueries * work.part_floats);
  work.scores = scratch.take(kQueries * work.row_floats);
  work.queries = scratch.take(kQueries * value_stride);
  work.query_codes = {scratch.take_codes(kQueries * value_stride), scratch.take(kQueries),
                      value_stride};
  work.weight_codes = {scratch.take_codes(kBlockQueriesMax * layout.page_tokens),
                       scratch.take(kBlockQueriesMax), layout.page_tokens};
  return work;
}

// Calls fn<Queries>(first query) for each block of the tile: as many as V takes, then 4, 3, 2, 1.
// Three is worth one of its own: a token of a model with three heads to a KV head has so many.
template <typename V, typename Fn>
[[gnu::always_inline]] inline void for_each_block(int64_t queries, Fn fn) {
  static_assert(V::kAttentionQueries <= kBlockQueriesMax);
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

// Calls fn<Vectors>(at) for the vectors of 16 that cover a range of which the first is 16-aligned,
// as many together as V takes for so many queries and none at `limit` or beyond.
template <typename V, int Queries, typename Fn>
[[gnu::always_inline]] inline void for_each_vectors(SlotRange range, int64_t limit, Fn fn) {
  constexpr int kVectors = V::attention_vectors(Queries);
  int64_t at = range.begin;
  for (; at + 16 * (kVectors - 1) < range.end && at + 16 * kVectors <= limit; at += 16 * kVectors) {
    fn.template operator()<kVectors>(at);
  }
  for (; at < range.end; at += 16) fn.template operator()<1>(at);
}

// Calls fn(page) for the pages that hold positions [begin, end) of the chunk that starts at
// `start`.
template <typename Fn>
[[gnu::always_inline]] inline void for_each_page(const AttentionTile& tile, int64_t start,
                                                 SlotRange positions, Fn fn) {
  const int64_t page_tokens = tile.layout->page_tokens;
  for (int64_t index = positions.begin / page_tokens; index * page_tokens < positions.end;
       ++index) {
    const int64_t begin = index * page_tokens;
    const auto at = static_cast<size_t>(index);
    const bool is_last = begin + page_tokens >= positions.end;
    fn(PageOfTile{tile.pages[at], is_last ? nullptr : tile.pages[at + 1], begin, begin - start});
  }
}

}  // namespace shoal::tensor

// Attention over 8-bit keys and values: its products in integers, written over a vector set V.
//
// The other factor of each product, a query or the weights of a page's positions, becomes 16-bit
// codes with a factor for the head or the page: x = code * factor to half a factor, where the
// largest magnitude m of the row has the code 32767. Codes are multiplied with the bytes of keys
// and values in pairs, and the sums of 32 bits are exact; so they are the same in blocks of every
// width, and positions that a query does not see have the code 0 and add nothing, whatever the page
// holds there.
// What the codes cost is small against what the bytes have cost before them. A score is off by up
// to the sum over the dimensions of m / 65534 times the key, below m * k / 65534 for each, where k
// is the key's largest; its bytes may be off by k / 254 each. An output is off by up to page_tokens
// * 127 * m / 65534, m the largest weight * scale of the page, which is m / 8 for 64 positions; the
// bytes of the heaviest value alone may be off by m / 2.
// A row that is not finite has codes of 0 and the factor NaN.
// Thread rule: pure functions; scratch belongs to the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "tensor/cpu/attention_work.h"

namespace shoal::tensor {

// The largest code whose products with `count` bytes add up in 32 bits.
[[gnu::always_inline]] inline float largest_code(int64_t count) {
  const int64_t fits = std::numeric_limits<int32_t>::max() / (128 * count);
  constexpr int64_t kMax = std::numeric_limits<int16_t>::max();
  return static_cast<float>(fits < kMax ? fits : kMax);
}

// Codes of the lanes at each place of a range, which is whole vectors; returns their factor.
template <typename V, typename LanesAt>
[[gnu::always_inline]] inline float to_codes(SlotRange range, float code_max, int16_t* codes,
                                             LanesAt lanes_at) {
  auto magnitudes = V::set(0.0F);
  auto zeros = V::set(0.0F);
  for (int64_t i = range.begin; i < range.end; i += 16) {
    const auto lanes = lanes_at(i);
    magnitudes = V::max(magnitudes, V::abs(lanes));
    zeros = V::fma(lanes, V::set(0.0F), zeros);
  }
  const float largest = V::reduce_max(magnitudes);
  const bool is_finite = V::reduce_add(zeros) == 0.0F;
  // Less is nothing beside the other weights and scores, and might have no finite inverse.
  if (!is_finite || largest < 0x1p-100F) {
    for (int64_t i = range.begin; i < range.end; i += 16) V::store_i16(codes + i, V::int_zero());
    return is_finite ? 0.0F : std::numeric_limits<float>::quiet_NaN();
  }
  const auto inverse = V::set(code_max / largest);
  for (int64_t i = range.begin; i < range.end; i += 16) {
    V::store_i16(codes + i, V::round_to_int(V::mul(lanes_at(i), inverse)));
  }
  return largest / code_max;
}

template <typename V>
inline void code_queries(const AttentionWork& work) {
  const KvLayout& layout = work.layout;
  const float code_max = largest_code(layout.key_dims());
  for (int64_t i = 0; i < work.tile.queries; ++i) {
    const CodeRows row = work.query_codes.from(i);
    const float* query = work.query(i);
    *row.factors = to_codes<V>({0, layout.value_stride()}, code_max, row.codes,
                               [&](int64_t d) { return V::load(query + d); });
  }
}

// Rows of pairs of bytes, to be multiplied with a pair of codes each and added up.
struct PairRows {
  Stream bytes;
  int64_t stride = 0;
  int64_t count = 0;
};

// sums[q][v], lane i = the sum over rows r of pair 16 v + i of row r times pair r of codes[q].
template <typename V, int Queries, int Vectors>
[[gnu::always_inline]] inline void sum_products(const PairRows& rows, const int16_t* codes,
                                                int64_t code_stride,
                                                typename V::I (&sums)[Queries][Vectors]) {
  for (auto& row : sums) {
    for (auto& lanes : row) lanes = V::int_zero();
  }
  Stream bytes = rows.bytes;
  for (int64_t r = 0; r < rows.count; ++r, bytes = bytes.from(rows.stride)) {
    bytes.prefetch(0, 32 * Vectors);
    typename V::Pairs pairs[Vectors];
    for (int v = 0; v < Vectors; ++v) pairs[v] = V::load_i8_pairs(bytes.now + 32 * v);
    for (int q = 0; q < Queries; ++q) {
      const auto code = V::load_i16_pair(codes + q * code_stride + 2 * r);
      for (int v = 0; v < Vectors; ++v) sums[q][v] = V::add_products(sums[q][v], pairs[v], code);
    }
  }
}

// A page's scores; lanes beside a query's slots may hold anything.
template <typename V>
void score_codes(const AttentionWork& work, const PageOfTile& page, const Stream& keys) {
  const KvLayout& layout = work.layout;
  const std::byte* scales = page.bytes + layout.key_scale_offset(work.tile.kv_head, 0);
  for_each_block<V>(work.tile.queries, [&]<int Queries>(int64_t first) {
    const SlotRange slots = work.seen_by_some(first, Queries, page);
    const CodeRows queries = work.query_codes.from(first);
    const SlotRange vectors{slots.begin / 16 * 16, slots.end};
    for_each_vectors<V, Queries>(vectors, layout.page_tokens, [&]<int Vectors>(int64_t slot) {
      const PairRows rows{keys.from(2 * slot), 2 * layout.page_tokens, layout.key_dims() / 2};
      typename V::I sums[Queries][Vectors];
      sum_products<V>(rows, queries.codes, queries.stride, sums);
      for (int q = 0; q < Queries; ++q) {
        float* row = work.row(first + q) + page.column + slot;
        const auto factor = V::set(queries.factors[q]);
        for (int v = 0; v < Vectors; ++v) {
          const auto scale = V::load_f16(scales + 2 * (slot + 16 * v));
          V::store(row + 16 * v, V::mul(V::mul(V::to_floats(sums[q][v]), factor), scale));
        }
      }
    });
  });
}

// Codes of a query's weights in a page, times the values' scales; returns their factor.
template <typename V>
inline float code_weights(const AttentionWork& work, int64_t query, const PageOfTile& page,
                          float code_max, int16_t* codes) {
  const KvLayout& layout = work.layout;
  const SlotRange seen = work.seen(query, page);
  const SlotRange vectors{seen.begin / 16 * 16, (seen.end + 15) / 16 * 16};
  for (int64_t s = 0; s < vectors.begin; s += 16) V::store_i16(codes + s, V::int_zero());
  for (int64_t s = vectors.end; s < layout.page_tokens; s += 16) {
    V::store_i16(codes + s, V::int_zero());
  }
  if (seen.begin == seen.end) return 0.0F;
  const float* row = work.row(query) + page.column;
  const std::byte* scales = page.bytes + layout.value_scale_offset(work.tile.kv_head, 0);
  return to_codes<V>(vectors, code_max, codes, [&](int64_t s) {
    const auto lanes = V::mul(V::load(row + s), V::load_f16(scales + 2 * s));
    if (s >= seen.begin && s + 16 <= seen.end) return lanes;
    return V::keep_lanes(lanes, seen.begin - s, seen.end - s, 0.0F);
  });
}

// parts += weights * values of a page.
template <typename V>
void add_codes(const AttentionWork& work, const PageOfTile& page, const Stream& values) {
  const KvLayout& layout = work.layout;
  const int64_t stride = 2 * layout.value_stride();
  const float code_max = largest_code(layout.page_tokens);
  const CodeRows& weights = work.weight_codes;
  for_each_block<V>(work.tile.queries, [&]<int Queries>(int64_t first) {
    const SlotRange slots = work.seen_by_some(first, Queries, page);
    if (slots.begin >= slots.end) return;
    for (int64_t q = 0; q < Queries; ++q) {
      const CodeRows row = weights.from(q);
      *row.factors = code_weights<V>(work, first + q, page, code_max, row.codes);
    }
    const SlotRange pairs{slots.begin / 2, (slots.end + 1) / 2};
    const Stream from = values.from(pairs.begin * stride);
    const SlotRange dims{0, layout.value_stride()};
    for_each_vectors<V, Queries>(dims, dims.end, [&]<int Vectors>(int64_t dim) {
      const PairRows rows{from.from(2 * dim), stride, pairs.end - pairs.begin};
      typename V::I sums[Queries][Vectors];
      sum_products<V>(rows, weights.codes + 2 * pairs.begin, weights.stride, sums);
      for (int q = 0; q < Queries; ++q) {
        const auto factor = V::set(weights.factors[q]);
        float* part = work.part(first + q) + dim;
        for (int v = 0; v < Vectors; ++v) {
          const auto before = V::load(part + 16 * v);
          V::store(part + 16 * v, V::fma(V::to_floats(sums[q][v]), factor, before));
        }
      }
    });
  });
}

}  // namespace shoal::tensor

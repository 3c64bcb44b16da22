#include "tensor/ops/attention.h"

#include <algorithm>

#include "base/check.h"
#include "tensor/cpu/attention_work.h"
#include "tensor/cpu/kernels.h"

namespace shoal::tensor {
namespace {

void check_layout(const KvLayout& layout) {
  CHECK(layout.type == DType::kF16 || layout.type == DType::kF32 || layout.type == DType::kI8);
  CHECK(layout.page_tokens > 0 && layout.page_tokens % KvLayout::kLanes == 0);
}

// Attention of one sequence is cut into units: one KV head and a tile of its queries, which are
// numbered token after token, and within a token by head.
class SequenceUnits {
 public:
  SequenceUnits(const KvLayout& layout, const AttentionParams& params, const KvSequence& sequence)
      : layout_(layout), params_(params), sequence_(sequence) {}

  // Local query heads that read KV head `kv_head` of the layout.
  Range query_heads(int64_t kv_head) const {
    const int64_t first = (params_.kv_head_begin + kv_head) * params_.group_size;
    const int64_t begin = std::max(first - params_.query_head_begin, int64_t{0});
    const int64_t end =
        std::min(first + params_.group_size - params_.query_head_begin, params_.query_heads);
    return {begin, std::max(begin, end)};
  }

  // Fills `tile` with queries [first, first + tile.queries) of a KV head.
  void fill(int64_t kv_head, int64_t first, const AttentionRows& rows, AttentionTile& tile) const {
    const Range heads = query_heads(kv_head);
    tile.layout = &layout_;
    tile.pages = sequence_.pages;
    tile.kv_head = kv_head;
    tile.scale = params_.scale;
    for (int64_t i = 0; i < tile.queries; ++i) {
      const int64_t token = (first + i) / heads.size();
      const int64_t head = heads.begin + (first + i) % heads.size();
      const auto lane = static_cast<size_t>(i);
      tile.q[lane] = rows.q.row(sequence_.row + token) + head * layout_.head_dim;
      tile.out[lane] = rows.out.row(sequence_.row + token) + head * layout_.head_dim;
      tile.end[lane] = sequence_.position + token + 1;
      tile.begin[lane] =
          params_.window > 0 ? std::max(tile.end[lane] - params_.window, int64_t{0}) : 0;
    }
  }

 private:
  const KvLayout& layout_;
  const AttentionParams& params_;
  const KvSequence& sequence_;
};

// Queries per unit: as many as a tile takes, fewer when there would be too few units to share.
int64_t queries_per_unit(int64_t queries_in_all, int64_t workers) {
  if (workers == 1) return AttentionTile::kQueriesMax;
  int64_t width = AttentionTile::kQueriesMax;
  while (width > 1 && queries_in_all / width < 4 * workers) width /= 2;
  return width;
}

// Steps with more queries have enough units without splitting.
constexpr int64_t kSplitQueriesMax = 64;
constexpr int64_t kSplitTileQueries = 8;

// The attention of one step.
class StepAttention {
 public:
  StepAttention(Worker& me, const KvLayout& layout, const AttentionParams& params,
                std::span<const KvSequence> sequences, const AttentionRows& rows)
      : me_(me), layout_(layout), params_(params), sequences_(sequences), rows_(rows) {
    for (const KvSequence& sequence : sequences) {
      queries_ += sequence.tokens * params.query_heads;
      context_ = std::max(context_, sequence.position + sequence.tokens);
    }
    CHECK(me.scratch().size() >= attention_scratch_bytes(me.kernels().path, layout, context_));
    tile_.scratch = me.scratch();
    chunk_ = attention_chunk(layout);
    chunks_ = (context_ + chunk_ - 1) / chunk_;
  }

  void run() {
    if (!is_split()) {
      const int64_t width = queries_per_unit(queries_, me_.count());
      for_each_tile(width, [&](int64_t) {
        if (is_mine()) me_.kernels().attention_tile(tile_);
      });
      return;
    }
    for_each_tile(kSplitTileQueries, [&](int64_t query) { attend_parts(query); });
    me_.barrier();
    for_each_tile(kSplitTileQueries, [&](int64_t query) {
      if (is_mine()) merge_parts(query);
    });
  }

 private:
  bool is_split() const {
    return me_.count() > 1 && chunks_ > 1 && queries_ <= kSplitQueriesMax &&
           me_.kernels().merge_attention != nullptr &&
           static_cast<int64_t>(rows_.parts.size()) >= queries_ * chunks_ * part_floats();
  }
  int64_t part_floats() const { return attention_part_floats(layout_); }
  float* parts_of(int64_t query) const {
    return rows_.parts.data() + query * chunks_ * part_floats();
  }

  // Units go to the workers in turn: later ones see more positions.
  bool is_mine() { return unit_++ % me_.count() == me_.index(); }

  // Calls fn(number of the tile's first query in the step) with tile_ filled.
  template <typename Fn>
  void for_each_tile(int64_t width, Fn fn) {
    int64_t query = 0;
    for (const KvSequence& sequence : sequences_) {
      const SequenceUnits units(layout_, params_, sequence);
      for (int64_t kv_head = 0; kv_head < layout_.kv_heads; ++kv_head) {
        const int64_t all = units.query_heads(kv_head).size() * sequence.tokens;
        for (int64_t first = 0; first < all;) {
          tile_.queries = std::min(width, all - first);
          units.fill(kv_head, first, rows_, tile_);
          fn(query + first);
          first += tile_.queries;
        }
        query += all;
      }
    }
  }

  // The chunks that some query of the tile sees.
  Range tile_chunks() const {
    const int64_t begin =
        *std::min_element(tile_.begin.begin(), tile_.begin.begin() + tile_.queries);
    const int64_t end = *std::max_element(tile_.end.begin(), tile_.end.begin() + tile_.queries);
    return {begin / chunk_, (end + chunk_ - 1) / chunk_};
  }

  void attend_parts(int64_t query) {
    const Range chunks = tile_chunks();
    for (int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      if (!is_mine()) continue;
      tile_.chunk = chunk;
      for (int64_t i = 0; i < tile_.queries; ++i) {
        tile_.out[static_cast<size_t>(i)] = parts_of(query + i) + chunk * part_floats();
      }
      me_.kernels().attention_tile(tile_);
    }
  }

  void merge_parts(int64_t query) const {
    const Range chunks = tile_chunks();
    for (int64_t i = 0; i < tile_.queries; ++i) {
      AttentionMerge merge;
      merge.layout = &layout_;
      merge.parts = parts_of(query + i) + chunks.begin * part_floats();
      merge.count = chunks.size();
      merge.total = reinterpret_cast<float*>(me_.scratch().data());
      merge.out = tile_.out[static_cast<size_t>(i)];
      me_.kernels().merge_attention(merge);
    }
  }

  Worker& me_;
  const KvLayout& layout_;
  const AttentionParams& params_;
  std::span<const KvSequence> sequences_;
  const AttentionRows& rows_;
  AttentionTile tile_;
  int64_t queries_ = 0;
  int64_t context_ = 0;
  int64_t chunk_ = 1;
  int64_t chunks_ = 0;
  int64_t unit_ = 0;
};

}  // namespace

void attention(Worker& me, const KvLayout& layout, const AttentionParams& params,
               std::span<const KvSequence> sequences, const AttentionRows& rows) {
  check_layout(layout);
  CHECK(rows.q.cols == params.query_heads * layout.head_dim && rows.out.cols == rows.q.cols);
  CHECK(params.group_size > 0);
  StepAttention(me, layout, params, sequences, rows).run();
}

size_t attention_parts_floats(const KvLayout& layout, int64_t context_max) {
  const int64_t chunk = attention_chunk(layout);
  const int64_t chunks = (context_max + chunk - 1) / chunk;
  return static_cast<size_t>(kSplitQueriesMax * chunks * attention_part_floats(layout));
}

size_t attention_scratch_bytes(KernelPath path, const KvLayout& layout, int64_t context_max) {
  const int64_t floats = path == KernelPath::kExact ? context_max : attention_tile_floats(layout);
  return static_cast<size_t>(floats) * sizeof(float);
}

}  // namespace shoal::tensor

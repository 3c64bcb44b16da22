#include "tensor/ops/attention.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "tensor/cpu/attention_kernel.h"
#include "tensor/cpu/kernels.h"
#include "tensor/float16.h"

namespace shoal::tensor {
namespace {

void check_layout(const KvLayout& layout) {
  CHECK(layout.type == DType::kF16 || layout.type == DType::kF32);
  CHECK(layout.page_tokens > 0 && layout.page_tokens % KvLayout::kLanes == 0);
}

void store_element(const KvLayout& layout, std::byte* page, int64_t element, float value) {
  if (layout.type == DType::kF32) {
    std::memcpy(page + element * 4, &value, sizeof(value));
    return;
  }
  const uint16_t half = float_to_f16_saturated(value);
  std::memcpy(page + element * 2, &half, sizeof(half));
}

// One head of one token's K and V into its slot of the page.
struct KvHead {
  const float* k;
  const float* v;
  int64_t head;
  int64_t slot;
};

void write_head(const KvLayout& layout, const KvHead& from, std::byte* page) {
  for (int64_t d = 0; d < layout.head_dim; ++d) {
    store_element(layout, page, layout.key_offset(from.head, d, from.slot), from.k[d]);
    store_element(layout, page, layout.value_offset(from.head, from.slot, d), from.v[d]);
  }
}

// Attention of one sequence is cut into units: one KV head and up to 8 of its queries, which are
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
  if (workers == 1) return kTileTokens;
  int64_t width = kTileTokens;
  while (width > 1 && queries_in_all / width < 4 * workers) width /= 2;
  return width;
}

}  // namespace

void write_kv(Worker& me, const KvLayout& layout, ConstFloatRows k, ConstFloatRows v,
              std::span<const KvSequence> sequences) {
  check_layout(layout);
  CHECK(k.cols == layout.kv_heads * layout.head_dim && v.cols == k.cols);
  for (const KvSequence& sequence : sequences) {
    CHECK(layout.pages_for(sequence.position + sequence.tokens) <=
          static_cast<int64_t>(sequence.pages.size()));
    const Range mine = me.share(sequence.tokens * layout.kv_heads);
    for (int64_t item = mine.begin; item < mine.end; ++item) {
      const int64_t token = item / layout.kv_heads;
      const int64_t head = item % layout.kv_heads;
      const int64_t position = sequence.position + token;
      write_head(layout,
                 {k.row(sequence.row + token) + head * layout.head_dim,
                  v.row(sequence.row + token) + head * layout.head_dim, head,
                  position % layout.page_tokens},
                 sequence.pages[static_cast<size_t>(position / layout.page_tokens)]);
    }
  }
}

void attention(Worker& me, const KvLayout& layout, const AttentionParams& params,
               std::span<const KvSequence> sequences, const AttentionRows& rows) {
  check_layout(layout);
  CHECK(rows.q.cols == params.query_heads * layout.head_dim && rows.out.cols == rows.q.cols);
  CHECK(params.group_size > 0);
  int64_t queries = 0;
  for (const KvSequence& sequence : sequences) queries += sequence.tokens * params.query_heads;
  const int64_t width = queries_per_unit(queries, me.count());
  int64_t unit = 0;  // units go to the workers in turn: later ones see more positions
  AttentionTile tile;
  tile.scratch = me.scratch();
  for (const KvSequence& sequence : sequences) {
    CHECK(me.scratch().size() >=
          attention_scratch_bytes(me.kernels().path, layout, sequence.position + sequence.tokens));
    const SequenceUnits units(layout, params, sequence);
    for (int64_t kv_head = 0; kv_head < layout.kv_heads; ++kv_head) {
      const int64_t all = units.query_heads(kv_head).size() * sequence.tokens;
      for (int64_t first = 0; first < all;) {
        tile.queries = std::min(width, next_tile_tokens(all - first));
        if (unit++ % me.count() == me.index()) {
          units.fill(kv_head, first, rows, tile);
          me.kernels().attention_tile(tile);
        }
        first += tile.queries;
      }
    }
  }
}

size_t attention_scratch_bytes(KernelPath path, const KvLayout& layout, int64_t context_max) {
  const int64_t floats = path == KernelPath::kExact ? context_max : attention_tile_floats(layout);
  return static_cast<size_t>(floats) * sizeof(float);
}

}  // namespace shoal::tensor

#include "tensor/ops/heads.h"

#include <algorithm>

#include "base/check.h"

namespace shoal::tensor {
namespace {

void check_steps(const HeadSteps& steps, const HeadPreparation& how, const FloatRows& rows,
                 int64_t head_dim) {
  CHECK(rows.cols % head_dim == 0);
  CHECK(steps.bias.empty() || static_cast<int64_t>(steps.bias.size()) == rows.cols);
  CHECK(steps.norm.weight.empty() || steps.norm.cols() == head_dim);
  if (!steps.rotates) return;
  const RopeTable& table = *how.angles.table;
  CHECK(table.config().rotary_dims <= head_dim);
  CHECK(static_cast<int64_t>(how.angles.values.size()) >= rope_angles_floats(table, rows.rows));
}

// Takes heads through their steps, in place.
class HeadWorker {
 public:
  HeadWorker(const Kernels& kernels, const RopeAngles& angles, int64_t head_dim)
      : kernels_(kernels), angles_(angles), head_dim_(head_dim) {}

  float* finish(const HeadSteps& steps, const FloatRows& rows, int64_t token, int64_t head) const {
    float* values = rows.row(token) + head * head_dim_;
    if (!steps.bias.empty()) {
      const float* bias = steps.bias.data() + head * head_dim_;
      for (int64_t i = 0; i < head_dim_; ++i) values[i] += bias[i];
    }
    if (!steps.norm.weight.empty()) steps.norm.apply(kernels_, values, values);
    if (steps.rotates) angles_.rotate(token, values);
    return values;
  }

 private:
  const Kernels& kernels_;
  const RopeAngles& angles_;
  int64_t head_dim_;
};

// The part of items [first, first + count) that is the worker's, counted from first.
Range part_of(const Range& mine, int64_t first, int64_t count) {
  const int64_t begin = std::clamp<int64_t>(mine.begin - first, 0, count);
  return {begin, std::clamp<int64_t>(mine.end - first, begin, count)};
}

}  // namespace

void prepare_heads(Worker& me, const KvLayout& layout, const HeadPreparation& how,
                   const HeadRows& rows, std::span<const KvSequence> sequences) {
  check_steps(how.q, how, rows.q, layout.head_dim);
  check_steps(how.k, how, rows.k, layout.head_dim);
  check_steps(how.v, how, rows.v, layout.head_dim);
  CHECK(rows.k.cols == layout.kv_heads * layout.head_dim && rows.v.cols == rows.k.cols);
  const HeadWorker worker(me.kernels(), how.angles, layout.head_dim);
  const int64_t query_heads = rows.q.cols / layout.head_dim;
  const int64_t heads = query_heads + layout.kv_heads;
  // A sequence's items are its tokens' query heads, then their KV heads.
  const Range mine = me.share(rows.q.rows * heads);
  int64_t first = 0;
  for (const KvSequence& sequence : sequences) {
    CHECK(layout.pages_for(sequence.position + sequence.tokens) <=
          static_cast<int64_t>(sequence.pages.size()));
    const Range part = part_of(mine, first, sequence.tokens * heads);
    first += sequence.tokens * heads;
    for (int64_t item = part.begin; item < part.end; ++item) {
      const int64_t token = item / heads;
      const int64_t row = sequence.row + token;
      const int64_t head = item % heads;
      if (head < query_heads) {
        worker.finish(how.q, rows.q, row, head);
        continue;
      }
      const int64_t kv_head = head - query_heads;
      const int64_t position = sequence.position + token;
      write_kv(me.kernels(), layout,
               {worker.finish(how.k, rows.k, row, kv_head),
                worker.finish(how.v, rows.v, row, kv_head), kv_head, position % layout.page_tokens},
               sequence.pages[static_cast<size_t>(position / layout.page_tokens)]);
    }
  }
}

}  // namespace shoal::tensor

// Grouped-query attention over the paged KV cache.
//
// A token attends to every position up to its own, or with a window W to the last W of them, itself
// included. Softmax, in float32, is put together from parts of about 512 positions, each with a
// maximum of its own. 8-bit keys and values meet queries and weights that are rounded to 16 bits
// (cpu/attention_codes.h says what that costs), but not in kExact. When a step has few queries, as
// in decoding, and a long context, workers share a query's parts; else each takes whole queries.
// Result bits do not depend on the number of workers or on the other tokens of the batch. Thread
// rule: SPMD; ends without a barrier. What prepare_heads wrote is read after one.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/ops/kv_page.h"
#include "tensor/rows.h"
#include "tensor/threads.h"

namespace shoal::tensor {

struct AttentionParams {
  int64_t query_heads = 0;       // of this rank
  int64_t query_head_begin = 0;  // the model's number of this rank's first query head
  int64_t kv_head_begin = 0;     // the model's number of the layout's first KV head
  int64_t group_size = 1;        // query heads per KV head: head h reads KV head h / group_size
  int64_t window = 0;            // positions that a token sees, itself included; 0: all
  float scale = 1.0F;            // on the scores, 1 / sqrt(head_dim) in most models
};

struct AttentionRows {
  ConstFloatRows q;  // [tokens, query_heads * head_dim]
  FloatRows out;     // the same shape, not overlapping q
  // Shared memory for the parts of split queries: attention_parts_floats, or none for no splitting.
  std::span<float> parts = {};
};

// out[token, head, :] = softmax(scale * q . K) V. May call a barrier. Needs attention_scratch_bytes
// of worker scratch.
void attention(Worker& me, const KvLayout& layout, const AttentionParams& params,
               std::span<const KvSequence> sequences, const AttentionRows& rows);

// For sequences of up to context_max positions.
size_t attention_parts_floats(const KvLayout& layout, int64_t context_max);
size_t attention_scratch_bytes(KernelPath path, const KvLayout& layout, int64_t context_max);

}  // namespace shoal::tensor

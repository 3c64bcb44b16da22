// Grouped-query attention over the paged KV cache.
//
// A token attends to every position up to its own, or with a window W to the last W of them, itself
// included. Softmax runs page by page with a running maximum (online softmax), in float32.
// Result bits do not depend on the number of workers or on the other tokens of the batch.
// Thread rule: SPMD; both ops end without a barrier.
#pragma once

#include <cstdint>
#include <span>

#include "tensor/ops/kv_page.h"
#include "tensor/rows.h"
#include "tensor/threads.h"

namespace shoal::tensor {

// k (after rope) and v [tokens, kv_heads * head_dim] into the pages. f16 pages clamp finite values
// to +-65504. Call a barrier before attention.
void write_kv(Worker& me, const KvLayout& layout, ConstFloatRows k, ConstFloatRows v,
              std::span<const KvSequence> sequences);

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
};

// out[token, head, :] = softmax(scale * q . K) V. Needs attention_scratch_bytes of worker scratch.
void attention(Worker& me, const KvLayout& layout, const AttentionParams& params,
               std::span<const KvSequence> sequences, const AttentionRows& rows);

// For sequences of up to context_max positions.
size_t attention_scratch_bytes(KernelPath path, const KvLayout& layout, int64_t context_max);

}  // namespace shoal::tensor

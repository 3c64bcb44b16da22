// KvLayout: one page of the KV cache, which holds some positions of one layer of one session.
//
// A page is K [kv_heads][head_dim][page_tokens] (16 positions side by side, as the score kernel
// reads them), then V [kv_heads][page_tokens][head_dim rounded up to 16], in f16 or f32. A page is
// 64-byte aligned; its contents matter only at positions that were written: pages are reused as
// they are.
// Thread rule: a plain description.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "tensor/dtype.h"

namespace shoal::tensor {

struct KvLayout {
  static constexpr int64_t kLanes = 16;
  static constexpr int64_t kPageTokensDefault = 64;

  DType type = DType::kF16;  // kF16 or kF32
  int64_t kv_heads = 0;      // of this rank
  int64_t head_dim = 0;
  int64_t page_tokens = kPageTokensDefault;  // a multiple of 16

  size_t element_bytes() const { return type == DType::kF32 ? 4 : 2; }
  [[gnu::always_inline]] int64_t value_stride() const {
    return (head_dim + kLanes - 1) / kLanes * kLanes;
  }
  // Elements from the start of the page. Always inlined: kernels of every instruction set use them,
  // and none may leave a copy that another source gets.
  [[gnu::always_inline]] int64_t key_offset(int64_t head, int64_t dim, int64_t slot) const {
    return (head * head_dim + dim) * page_tokens + slot;
  }
  [[gnu::always_inline]] int64_t value_offset(int64_t head, int64_t slot, int64_t dim) const {
    return kv_heads * head_dim * page_tokens + (head * page_tokens + slot) * value_stride() + dim;
  }
  // A multiple of 64.
  size_t page_bytes() const {
    const int64_t elements = kv_heads * page_tokens * (head_dim + value_stride());
    return (static_cast<size_t>(elements) * element_bytes() + 63) / 64 * 64;
  }
  int64_t pages_for(int64_t tokens) const { return (tokens + page_tokens - 1) / page_tokens; }
};

// The tokens of one session in a step's batch: rows [row, row + tokens) of q, k, v are the
// positions [position, position + tokens); pages[i] holds positions from i * page_tokens.
struct KvSequence {
  std::span<std::byte* const> pages = {};
  int64_t position = 0;
  int64_t tokens = 0;
  int64_t row = 0;
};

}  // namespace shoal::tensor

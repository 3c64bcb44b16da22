// KvLayout: one page of the KV cache, which holds some positions of one layer of one session.
//
// A page is K [kv_heads][head_dim][page_tokens] (16 positions side by side, as the score kernel
// reads them), then V [kv_heads][page_tokens][head_dim rounded up to 16], in f32 or f16.
// In 8 bits what is added up lies in pairs: K [kv_heads][head_dim / 2 rounded up][page_tokens][2],
// V [kv_heads][page_tokens / 2][head_dim rounded up to 16][2]. There follow the scales of K and
// those of V, f16 [kv_heads][page_tokens] each: a value is its signed byte, -127 to 127, times the
// scale of its head and position. A page is 64-byte aligned; its contents matter only at positions
// that were written: pages are reused as they are. Thread rule: plain descriptions; write_kv may
// run for different heads or slots of a page at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "tensor/dtype.h"

namespace shoal::tensor {

struct Kernels;

struct KvLayout {
  static constexpr int64_t kLanes = 16;
  static constexpr int64_t kPageTokensDefault = 64;

  DType type = DType::kF16;  // kF32, kF16 or kI8
  int64_t kv_heads = 0;      // of this rank
  int64_t head_dim = 0;
  int64_t page_tokens = kPageTokensDefault;  // a multiple of 16

  // Always inlined, as are all that the kernels of every instruction set use: none may leave a copy
  // that another source gets.
  [[gnu::always_inline]] bool has_scales() const { return type == DType::kI8; }
  size_t element_bytes() const { return dtype_info(type).block_bytes; }
  [[gnu::always_inline]] int64_t value_stride() const {
    return (head_dim + kLanes - 1) / kLanes * kLanes;
  }
  // Dimensions that a head's keys have room for.
  [[gnu::always_inline]] int64_t key_dims() const {
    return has_scales() ? (head_dim + 1) / 2 * 2 : head_dim;
  }
  // Elements from the start of the page.
  [[gnu::always_inline]] int64_t key_offset(int64_t head, int64_t dim, int64_t slot) const {
    const int64_t first = head * key_dims() * page_tokens;
    if (has_scales()) return first + (dim / 2 * page_tokens + slot) * 2 + dim % 2;
    return first + dim * page_tokens + slot;
  }
  [[gnu::always_inline]] int64_t value_offset(int64_t head, int64_t slot, int64_t dim) const {
    const int64_t first = (kv_heads * key_dims() + head * value_stride()) * page_tokens;
    if (has_scales()) return first + (slot / 2 * value_stride() + dim) * 2 + slot % 2;
    return first + slot * value_stride() + dim;
  }
  // Bytes from the start of a page of kI8.
  [[gnu::always_inline]] int64_t key_scale_offset(int64_t head, int64_t slot) const {
    return value_offset(kv_heads, 0, 0) + 2 * (head * page_tokens + slot);
  }
  [[gnu::always_inline]] int64_t value_scale_offset(int64_t head, int64_t slot) const {
    return key_scale_offset(kv_heads + head, slot);
  }
  // A multiple of 64.
  size_t page_bytes() const {
    const auto elements =
        static_cast<size_t>(kv_heads * page_tokens * (key_dims() + value_stride()));
    const auto scales = static_cast<size_t>(has_scales() ? 2 * kv_heads * page_tokens : 0);
    return (elements * element_bytes() + scales * 2 + 63) / 64 * 64;
  }
  int64_t pages_for(int64_t tokens) const { return (tokens + page_tokens - 1) / page_tokens; }
};

// One head of one token, and where it goes.
struct KvHead {
  const float* k = nullptr;  // [head_dim], after rope
  const float* v = nullptr;  // [head_dim]
  int64_t head = 0;          // of the layout
  int64_t slot = 0;          // of the page
};

// f16 pages clamp finite values to +-65504. In 8 bits a head's scale is its largest magnitude /
// 127, and NaN when it holds a value that is not finite.
void write_kv(const Kernels& kernels, const KvLayout& layout, const KvHead& from, std::byte* page);

// The tokens of one session in a step's batch: rows [row, row + tokens) of q, k, v are the
// positions [position, position + tokens); pages[i] holds positions from i * page_tokens.
struct KvSequence {
  std::span<std::byte* const> pages = {};
  int64_t position = 0;
  int64_t tokens = 0;
  int64_t row = 0;
};

}  // namespace shoal::tensor

// The reference kernels: float32 (float64 for long sums of norms and exponentials), plain loops.
#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/vec_portable.h"
#include "tensor/cpu/vector_kernel.h"
#include "tensor/float16.h"
#include "tensor/quant/quant_block.h"

namespace shoal::tensor {
namespace {

// Sixteen running sums, added up in order at the end: one fixed order that compilers can vectorize.
float dot_exact(const float* a, const float* b, int64_t count) {
  std::array<float, 16> sums{};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int64_t lane = 0; lane < 16; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  for (; i < count; ++i) sums[i % 16] += a[i] * b[i];
  float total = 0;
  for (const float sum : sums) total += sum;
  return total;
}

void scale_by_weight_exact(const float* x, const float* weight, float factor, float* y,
                           int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * factor * weight[i];
}

void swiglu_exact(const float* gate, const float* up, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = gate[i] / (1.0F + std::exp(-gate[i])) * up[i];
}

double sum_exp_exact(const float* x, float shift, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += std::exp(static_cast<double>(x[i] - shift));
  return total;
}

float kv_value(const KvLayout& layout, const std::byte* page, int64_t element) {
  switch (layout.type) {
    case DType::kF32:
      return load_float(page + element * 4);
    case DType::kI8:
      return static_cast<float>(static_cast<int8_t>(page[element]));
    default:
      return f16_to_float(load_u16(page + element * 2));
  }
}

float kv_scale(const KvLayout& layout, const std::byte* page, int64_t offset) {
  return layout.has_scales() ? f16_to_float(load_u16(page + offset)) : 1.0F;
}

// Scores of all positions, softmax over them, weighted sum of the values.
void attend_query(const AttentionTile& tile, int64_t query) {
  const KvLayout& layout = *tile.layout;
  const int64_t begin = tile.begin[query];
  const int64_t end = tile.end[query];
  auto* weights = reinterpret_cast<float*>(tile.scratch.data());  // [end - begin]
  const auto page_of = [&](int64_t position) {
    return tile.pages[static_cast<size_t>(position / layout.page_tokens)];
  };
  for (int64_t position = begin; position < end; ++position) {
    const int64_t slot = position % layout.page_tokens;
    float score = 0;
    for (int64_t d = 0; d < layout.head_dim; ++d) {
      score += tile.q[query][d] *
               kv_value(layout, page_of(position), layout.key_offset(tile.kv_head, d, slot));
    }
    score *= kv_scale(layout, page_of(position), layout.key_scale_offset(tile.kv_head, slot));
    weights[position - begin] = score * tile.scale;
  }
  const float maximum = *std::max_element(weights, weights + (end - begin));
  float sum = 0;
  for (int64_t i = 0; i < end - begin; ++i) {
    weights[i] = std::exp(weights[i] - maximum);
    sum += weights[i];
  }
  float* out = tile.out[query];
  std::fill_n(out, layout.head_dim, 0.0F);
  for (int64_t position = begin; position < end; ++position) {
    const int64_t slot = position % layout.page_tokens;
    const float weight =
        weights[position - begin] / sum *
        kv_scale(layout, page_of(position), layout.value_scale_offset(tile.kv_head, slot));
    for (int64_t d = 0; d < layout.head_dim; ++d) {
      out[d] +=
          weight * kv_value(layout, page_of(position), layout.value_offset(tile.kv_head, slot, d));
    }
  }
}

void attention_tile_exact(const AttentionTile& tile) {
  for (int64_t query = 0; query < tile.queries; ++query) attend_query(tile, query);
}

}  // namespace

constinit const Kernels kExactKernels = {
    .path = KernelPath::kExact,
    .quantize_blocks = nullptr,
    .matmul_tile = {},
    .dot = dot_exact,
    .scale_by_weight = scale_by_weight_exact,
    .swiglu = swiglu_exact,
    .store_halves = store_halves_lanes<VecPortable>,
    .attention_tile = attention_tile_exact,
    .sum_exp = sum_exp_exact,
    .float_rounds = float_rounds_lanes<VecPortable>,
};

}  // namespace shoal::tensor

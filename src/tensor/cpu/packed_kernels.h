// packed_kernels: the table of a kernel path that is made of the templates over a vector set V.
//
// Only the sources with that path's instruction sets include it. Thread rule: constant data.
#pragma once

#include <cstddef>
#include <utility>

#include "tensor/cpu/attention_kernel.h"
#include "tensor/cpu/kernels.h"
#include "tensor/cpu/matmul_kernel.h"
#include "tensor/cpu/vector_kernel.h"

namespace shoal::tensor {

template <typename V>
constexpr Kernels packed_kernels(KernelPath path) {
  return {
      .path = path,
      .quantize_blocks = quantize_blocks_8<V>,
      .matmul_tile = all_matmul_tiles<V>(std::make_index_sequence<kSupportedTypes>()),
      .matmul_panel = all_wide_panels<V>(std::make_index_sequence<kSupportedTypes>()),
      .dot = dot_lanes<V>,
      .scale_by_weight = scale_by_weight_lanes<V>,
      .swiglu = swiglu_lanes<V>,
      .store_halves = store_halves_lanes<V>,
      .attention_tile = attention_tile_lanes<V>,
      .merge_attention = merge_attention_lanes<V>,
      .sum_exp = sum_exp_lanes<V>,
      .float_rounds = float_rounds_lanes<V>,
  };
}

}  // namespace shoal::tensor

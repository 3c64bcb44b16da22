// RankWeights: one rank's part of a model's weights, packed for its kernels.
//
// Shapes are the rank's own: `q` of its query heads, and so on. Norms and biases are float32.
// Under KernelPath::kExact matrices borrow the model's file. Thread rule: immutable after loading.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/status.h"
#include "model/model.h"
#include "plan/plan.h"
#include "tensor/matrix.h"
#include "tensor/threads.h"

namespace shoal::runtime {

struct LayerWeights {
  std::vector<float> attn_norm;  // [hidden]
  tensor::PackedMatrix wq;       // [q_heads * head_dim, hidden]
  tensor::PackedMatrix wk;       // [kv_heads * head_dim, hidden]
  tensor::PackedMatrix wv;       // [kv_heads * head_dim, hidden]
  tensor::PackedMatrix wo;       // [hidden, q_heads * head_dim]
  std::vector<float> bq;         // [q_heads * head_dim] or empty
  std::vector<float> bk;         // [kv_heads * head_dim] or empty
  std::vector<float> bv;         // [kv_heads * head_dim] or empty
  std::vector<float> q_norm;     // [head_dim] or empty
  std::vector<float> k_norm;     // [head_dim] or empty
  std::vector<float> ffn_norm;   // [hidden]
  tensor::PackedMatrix w_gate;   // [ffn, hidden]
  tensor::PackedMatrix w_up;     // [ffn, hidden]
  tensor::PackedMatrix w_down;   // [hidden, ffn]
};

struct RankWeights {
  std::vector<LayerWeights> layers;
  std::vector<float> output_norm;  // [hidden]
  tensor::PackedMatrix output;     // [vocabulary rows, hidden]
  uint64_t bytes = 0;              // of all of it in memory, or of the borrowed part of the file
};

// Packs in parallel on the pool, for its path. kRequest for a tensor that cannot be computed with.
Result<RankWeights> load_weights(const model::Model& model, const plan::RankPlan& plan,
                                 tensor::WorkerPool& pool,
                                 const std::function<void(uint64_t done, uint64_t total)>& on_load);

}  // namespace shoal::runtime

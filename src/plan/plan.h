// Plan: how one model is laid over the ranks of a tensor-parallel group.
//
// Every rank holds, of every layer, some query heads with the KV heads that they read, some columns
// of the feed-forward part, and some rows of the output head; norms are on every rank, the
// embedding table is read by rank 0 only. Shares follow the weights, in grains: one KV-head group
// (one query head when there are more ranks than KV heads, whose KV heads are then held by several
// ranks), one quantization block of feed-forward columns, one block of vocabulary rows.
// Invariants of a Plan: query heads, feed-forward columns and vocabulary rows of the ranks are
// contiguous, in rank order, none empty, and cover everything once.
// Pure: no input, output or threads. Thread rule: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/model.h"

namespace shoal::plan {

// [begin, end)
struct Range {
  uint64_t begin = 0;
  uint64_t end = 0;

  uint64_t size() const { return end - begin; }
  bool contains(uint64_t i) const { return i >= begin && i < end; }
  bool operator==(const Range&) const = default;
};

enum class KvType { kF16, kF32, kQ8 };       // kQ8: 8 bits, with a scale per head and position
std::string_view kv_type_name(KvType type);  // "f16", "f32", "q8"
std::optional<KvType> kv_type_from_name(std::string_view name);

struct PlanRequest {
  uint32_t ranks = 1;
  std::vector<double> weights;  // one per rank, or empty: even
  uint32_t context = 0;         // positions of KV cache per rank, over all sessions; 0: the model's
  KvType kv_type = KvType::kF16;
};

struct LayerShard {
  Range q_heads;
  Range kv_heads;  // those that q_heads read
  Range ffn;
};

struct RankPlan {
  std::vector<LayerShard> layers;
  Range vocabulary;
  uint64_t weight_bytes = 0;        // as in the file, of this rank's part
  uint64_t kv_bytes_per_token = 0;  // over all layers
  uint64_t kv_bytes = 0;            // for the whole context
};

struct Plan {
  std::vector<RankPlan> ranks;
  uint32_t context = 0;
  KvType kv_type = KvType::kF16;
  bool kv_heads_replicated = false;      // some KV head is on more than one rank
  uint64_t weight_bytes = 0;             // over all ranks, what several hold counted each time
  uint64_t kv_bytes_per_token = 0;       // over all ranks
  uint64_t kv_bytes = 0;                 // over all ranks
  std::vector<std::string> explanation;  // one sentence each, for `shoal plan`
};

// What a plan needs to know of the weights: bytes in the file of each matrix.
struct LayerBytes {
  uint64_t q = 0;   // with its bias
  uint64_t kv = 0;  // keys and values, with their biases
  uint64_t o = 0;
  uint64_t ffn = 0;         // gate, up and down
  uint64_t ffn_grain = 32;  // columns of `down` in one quantization block
  uint64_t replicated = 0;  // norms
};

struct WeightBytes {
  std::vector<LayerBytes> layers;
  uint64_t output = 0;
  uint64_t replicated = 0;  // the last norm
};

WeightBytes weight_bytes(const model::ModelTensors& tensors);

// "3,1" as {3, 1}; kRequest where it is not a list of positive numbers.
Result<std::vector<double>> parse_split(std::string_view text);

// kRequest saying what cannot work, with the largest number of ranks that can.
Result<Plan> make_plan(const model::ModelConfig& config, const WeightBytes& weights,
                       const PlanRequest& request);

}  // namespace shoal::plan

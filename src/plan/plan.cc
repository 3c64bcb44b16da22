#include "plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "base/limits.h"
#include "plan/apportion.h"

namespace shoal::plan {
namespace {

// In the order of the enumeration.
constexpr std::array<std::string_view, 3> kKvTypeNames = {"f16", "f32", "q8"};

// A vocabulary is dealt out in blocks of this many rows, or half as many, and so on, until every
// rank can have at least kVocabularyGrainsMin of them.
constexpr uint64_t kVocabularyGrain = 64;
constexpr uint64_t kVocabularyGrainsMin = 8;
// The finest grain of feed-forward columns: the shortest quantization block.
constexpr uint64_t kFfnGrainMin = 32;
constexpr double kWeightRatioMax = 1e6;

uint64_t grains_of(uint64_t items, uint64_t grain) { return (items + grain - 1) / grain; }

uint64_t bytes_of(const model::TensorInfo* tensor) {
  return tensor == nullptr ? 0 : tensor->data.size();
}

// The part's bytes, rounded to the nearest; the products would not fit in 64 bits.
uint64_t share_of(uint64_t bytes, uint64_t part, uint64_t whole) {
  const double fraction = static_cast<double>(part) / static_cast<double>(whole);
  return static_cast<uint64_t>(std::llround(static_cast<double>(bytes) * fraction));
}

// Contiguous ranges of `items` in rank order; the last grain may be a short one.
std::vector<Range> deal(uint64_t items, uint64_t grain, std::span<const double> weights) {
  const std::vector<uint64_t> counts = apportion(grains_of(items, grain), weights);
  std::vector<Range> ranges;
  uint64_t begin = 0;
  for (const uint64_t count : counts) {
    const uint64_t end = std::min(items, begin + count * grain);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

// Coarse grains as long as they go round.
uint64_t halve_until(uint64_t grain, uint64_t items, uint64_t grains_min) {
  while (grain > 1 && grains_of(items, grain) < grains_min) grain /= 2;
  return grain;
}

uint64_t ffn_grain(uint64_t ffn, uint64_t block, uint64_t ranks) {
  return ffn % block == 0 && ffn / block >= ranks
             ? block
             : halve_until(std::min(block, kFfnGrainMin), ffn, ranks);
}

Status check_weights(const PlanRequest& request) {
  if (request.weights.empty()) return Status::ok();
  if (request.weights.size() != request.ranks) {
    return Status::request(fmt::format("the split {} has {} shares, but there are {} nodes",
                                       fmt::join(request.weights, ","), request.weights.size(),
                                       request.ranks));
  }
  const auto [least, most] = std::minmax_element(request.weights.begin(), request.weights.end());
  for (const double weight : request.weights) {
    if (!(weight > 0) || !std::isfinite(weight)) {
      return Status::request(
          fmt::format("the split has a share of {}: shares must be above 0", weight));
    }
  }
  if (*most / *least > kWeightRatioMax) {
    return Status::request(
        fmt::format("the split's shares {} and {} are too far apart: leave the "
                    "small node out",
                    *most, *least));
  }
  return Status::ok();
}

Status check_request(const model::ModelConfig& config, const PlanRequest& request) {
  if (request.ranks == 0 || request.ranks > kGroupSizeMax) {
    return Status::request(
        fmt::format("{} nodes: must be from 1 to {}", request.ranks, kGroupSizeMax));
  }
  RETURN_IF_ERROR(check_weights(request));
  if (request.context > model::kContextMax) {
    return Status::request(fmt::format("a context of {} tokens: at most {} are allowed",
                                       request.context, model::kContextMax));
  }
  uint64_t ranks_max = config.vocab;
  for (const model::LayerSpec& layer : config.layers) {
    ranks_max = std::min<uint64_t>({ranks_max, layer.heads, layer.ffn});
  }
  if (request.ranks > ranks_max) {
    return Status::request(fmt::format(
        "{} cannot be split over {} nodes: every node needs at least one of the {} query heads; at "
        "most {} nodes work",
        config.display_name, request.ranks, config.layers.front().heads, ranks_max));
  }
  return Status::ok();
}

// The shards of one layer, by rank.
std::vector<LayerShard> shard_layer(const model::LayerSpec& spec, uint64_t ffn_block,
                                    std::span<const double> weights) {
  const uint64_t group = spec.heads / spec.kv_heads;
  const bool whole_groups = weights.size() <= spec.kv_heads;
  const std::vector<Range> heads = deal(spec.heads, whole_groups ? group : 1, weights);
  const std::vector<Range> ffn =
      deal(spec.ffn, ffn_grain(spec.ffn, ffn_block, weights.size()), weights);
  std::vector<LayerShard> shards;
  for (size_t rank = 0; rank < weights.size(); ++rank) {
    const Range kv{heads[rank].begin / group, grains_of(heads[rank].end, group)};
    shards.push_back({heads[rank], kv, ffn[rank]});
  }
  return shards;
}

uint64_t layer_weight_bytes(const model::LayerSpec& spec, const LayerBytes& bytes,
                            const LayerShard& shard) {
  return share_of(bytes.q + bytes.o, shard.q_heads.size(), spec.heads) +
         share_of(bytes.kv, shard.kv_heads.size(), spec.kv_heads) +
         share_of(bytes.ffn, shard.ffn.size(), spec.ffn) + bytes.replicated;
}

uint64_t layer_kv_bytes(const model::LayerSpec& spec, const LayerShard& shard, KvType type) {
  const uint64_t element = type == KvType::kQ8 ? 1 : (type == KvType::kF16 ? 2 : 4);
  const uint64_t scales = type == KvType::kQ8 ? 2 * 2 : 0;
  return shard.kv_heads.size() *
         ((uint64_t{spec.head_dim} + spec.value_head_dim) * element + scales);
}

std::string megabytes(uint64_t bytes) {
  return fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6);
}

void explain(const model::ModelConfig& config, Plan* plan) {
  std::vector<std::string>& out = plan->explanation;
  const size_t ranks = plan->ranks.size();
  const model::LayerSpec& first = config.layers.front();
  out.push_back(fmt::format("{}: {} layers over {} node{}, each with a part of every layer.",
                            config.display_name, config.layers.size(), ranks,
                            ranks == 1 ? "" : "s"));
  if (ranks > 1) {
    out.push_back(
        plan->kv_heads_replicated
            ? fmt::format("There are more nodes than KV heads ({}): query heads are dealt out one "
                          "by one, and a KV head is held by every node that reads it.",
                          first.kv_heads)
            : fmt::format("Attention is dealt out in groups of {} query heads with their KV head.",
                          first.heads / first.kv_heads));
  }
  for (size_t rank = 0; rank < ranks; ++rank) {
    const RankPlan& part = plan->ranks[rank];
    const LayerShard& shard = part.layers.front();
    out.push_back(fmt::format(
        "Node {}: query heads {} to {} of {}, KV heads {} to {} of {}, {} of {} feed-forward "
        "columns, {} of {} vocabulary rows; weights {}, KV cache {} ({} bytes per token).",
        rank, shard.q_heads.begin, shard.q_heads.end - 1, first.heads, shard.kv_heads.begin,
        shard.kv_heads.end - 1, first.kv_heads, shard.ffn.size(), first.ffn, part.vocabulary.size(),
        config.vocab, megabytes(part.weight_bytes), megabytes(part.kv_bytes),
        part.kv_bytes_per_token));
  }
  out.push_back(fmt::format("In all {} of weights and {} of KV cache for {} positions.",
                            megabytes(plan->weight_bytes), megabytes(plan->kv_bytes),
                            plan->context));
}

}  // namespace

std::string_view kv_type_name(KvType type) { return kKvTypeNames[static_cast<size_t>(type)]; }

std::optional<KvType> kv_type_from_name(std::string_view name) {
  for (size_t i = 0; i < kKvTypeNames.size(); ++i) {
    if (kKvTypeNames[i] == name) return static_cast<KvType>(i);
  }
  return std::nullopt;
}

WeightBytes weight_bytes(const model::ModelTensors& tensors) {
  WeightBytes out;
  for (const model::LayerTensors& t : tensors.layers) {
    LayerBytes bytes;
    bytes.q = bytes_of(t.wq) + bytes_of(t.bq);
    bytes.kv = bytes_of(t.wk) + bytes_of(t.bk) + bytes_of(t.wv) + bytes_of(t.bv);
    bytes.o = bytes_of(t.wo);
    bytes.ffn = bytes_of(t.w_gate) + bytes_of(t.w_up) + bytes_of(t.w_down);
    bytes.replicated =
        bytes_of(t.attn_norm) + bytes_of(t.ffn_norm) + bytes_of(t.q_norm) + bytes_of(t.k_norm);
    if (t.w_down != nullptr) {
      bytes.ffn_grain = std::max<uint64_t>(kFfnGrainMin, t.w_down->type.block_elements);
    }
    out.layers.push_back(bytes);
  }
  out.output = bytes_of(tensors.output);
  out.replicated = bytes_of(tensors.output_norm);
  return out;
}

Result<std::vector<double>> parse_split(std::string_view text) {
  std::vector<double> weights;
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  while (true) {
    double weight = 0;
    const auto [next, error] = std::from_chars(at, end, weight);
    const bool is_last = next == end;
    if (error != std::errc() || !(weight > 0) || !std::isfinite(weight) ||
        (!is_last && *next != ',') || weights.size() >= kGroupSizeMax) {
      return Status::request(fmt::format(
          "\"{}\" is no split: give one number above 0 for each node, such as 3,1", text));
    }
    weights.push_back(weight);
    if (is_last) return weights;
    at = next + 1;
  }
}

Result<Plan> make_plan(const model::ModelConfig& config, const WeightBytes& weights,
                       const PlanRequest& request) {
  CHECK(!config.layers.empty() && weights.layers.size() == config.layers.size());
  RETURN_IF_ERROR(check_request(config, request));
  const std::vector<double> shares =
      request.weights.empty() ? std::vector<double>(request.ranks, 1.0) : request.weights;

  Plan plan;
  plan.context = request.context > 0 ? request.context : config.context;
  plan.kv_type = request.kv_type;
  plan.ranks.resize(request.ranks);
  for (size_t layer = 0; layer < config.layers.size(); ++layer) {
    const model::LayerSpec& spec = config.layers[layer];
    const LayerBytes& bytes = weights.layers[layer];
    plan.kv_heads_replicated |= request.ranks > spec.kv_heads;
    const std::vector<LayerShard> shards = shard_layer(spec, bytes.ffn_grain, shares);
    for (size_t rank = 0; rank < shards.size(); ++rank) {
      RankPlan& part = plan.ranks[rank];
      part.layers.push_back(shards[rank]);
      part.weight_bytes += layer_weight_bytes(spec, bytes, shards[rank]);
      part.kv_bytes_per_token += layer_kv_bytes(spec, shards[rank], request.kv_type);
    }
  }

  const uint64_t grain =
      halve_until(kVocabularyGrain, config.vocab, kVocabularyGrainsMin * request.ranks);
  const std::vector<Range> rows = deal(config.vocab, grain, shares);
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    RankPlan& part = plan.ranks[rank];
    part.vocabulary = rows[rank];
    part.weight_bytes +=
        share_of(weights.output, rows[rank].size(), config.vocab) + weights.replicated;
    part.kv_bytes = part.kv_bytes_per_token * plan.context;
    plan.weight_bytes += part.weight_bytes;
    plan.kv_bytes_per_token += part.kv_bytes_per_token;
    plan.kv_bytes += part.kv_bytes;
  }
  explain(config, &plan);
  return plan;
}

}  // namespace shoal::plan

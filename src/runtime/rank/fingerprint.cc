#include "runtime/rank/fingerprint.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <span>

namespace shoal::runtime {
namespace {

// Each tensor's first, middle and last bytes: few pages, which may have to come from a disk.
constexpr size_t kSamples = 3;
constexpr size_t kSampleBytes = 64;

class Hash {
 public:
  Hash& add(uint64_t value) {
    for (int byte = 0; byte < 8; ++byte) step(static_cast<uint8_t>(value >> (8 * byte)));
    return *this;
  }
  Hash& add(double value) { return add(std::bit_cast<uint64_t>(value)); }
  Hash& add(bool value) { return add(uint64_t{value}); }
  Hash& add(std::string_view text) {
    add(uint64_t{text.size()});
    for (const char c : text) step(static_cast<uint8_t>(c));
    return *this;
  }
  Hash& add(std::span<const std::byte> bytes) {
    for (const std::byte byte : bytes) step(static_cast<uint8_t>(byte));
    return *this;
  }
  uint64_t value() const { return state_; }

 private:
  void step(uint8_t byte) { state_ = (state_ ^ byte) * 0x100000001b3; }

  uint64_t state_ = 0xcbf29ce484222325;
};

void add_rope(const tensor::RopeConfig& rope, Hash* hash) {
  hash->add(static_cast<uint64_t>(rope.rotary_dims)).add(rope.theta);
  hash->add(static_cast<uint64_t>(rope.pairing)).add(static_cast<uint64_t>(rope.scaling));
  hash->add(rope.factor).add(rope.original_context);
  hash->add(rope.low_frequency_factor).add(rope.high_frequency_factor);
  hash->add(rope.beta_fast).add(rope.beta_slow).add(rope.truncate_bounds);
  hash->add(rope.attention_factor).add(uint64_t{rope.frequency_divisors.size()});
  for (const float divisor : rope.frequency_divisors) hash->add(double{divisor});
}

uint64_t hash_settings(const model::ModelConfig& config) {
  Hash hash;
  hash.add(std::string_view(config.family))
      .add(uint64_t{config.hidden})
      .add(uint64_t{config.vocab});
  hash.add(double{config.norm_epsilon}).add(config.tied_embeddings);
  add_rope(config.rope, &hash);
  for (const model::LayerSpec& layer : config.layers) {
    hash.add(static_cast<uint64_t>(layer.attention)).add(uint64_t{layer.heads});
    hash.add(uint64_t{layer.kv_heads}).add(uint64_t{layer.head_dim});
    hash.add(uint64_t{layer.value_head_dim}).add(uint64_t{layer.sliding_window});
    hash.add(layer.qkv_bias).add(layer.qk_norm);
    hash.add(static_cast<uint64_t>(layer.feed_forward)).add(uint64_t{layer.ffn});
  }
  return hash.value();
}

uint64_t hash_tensors(const model::ModelFile& file) {
  Hash hash;
  for (const model::TensorInfo& tensor : file.tensors()) {
    hash.add(std::string_view(tensor.name)).add(tensor.type.name);
    for (size_t i = 0; i < tensor.shape.rank(); ++i) hash.add(uint64_t{tensor.shape[i]});
  }
  return hash.value();
}

uint64_t hash_weights(const model::ModelFile& file) {
  Hash hash;
  for (const model::TensorInfo& tensor : file.tensors()) {
    const std::span<const std::byte> data = tensor.data;
    hash.add(uint64_t{data.size()});
    if (data.size() <= kSamples * kSampleBytes) {
      hash.add(data);
      continue;
    }
    const size_t last = data.size() - kSampleBytes;
    for (size_t i = 0; i < kSamples; ++i) {
      hash.add(data.subspan(last * i / (kSamples - 1), kSampleBytes));
    }
  }
  return hash.value();
}

uint64_t hash_layout(const plan::Plan& plan, const EngineOptions& options) {
  Hash hash;
  for (const plan::RankPlan& rank : plan.ranks) {
    hash.add(rank.vocabulary.begin).add(rank.vocabulary.end);
    for (const plan::LayerShard& shard : rank.layers) {
      hash.add(shard.q_heads.begin).add(shard.q_heads.end);
      hash.add(shard.kv_heads.begin).add(shard.kv_heads.end);
      hash.add(shard.ffn.begin).add(shard.ffn.end);
    }
  }
  hash.add(uint64_t{plan.context}).add(static_cast<uint64_t>(plan.kv_type)).add(options.exact);
  hash.add(uint64_t{options.prefill_chunk}).add(uint64_t{options.sessions_max});
  hash.add(uint64_t{options.tokens});
  return hash.value();
}

}  // namespace

Fingerprint fingerprint_of(const model::Model& model, const plan::Plan& plan,
                           const EngineOptions& options) {
  return {.settings = hash_settings(model.config),
          .tensors = hash_tensors(*model.file),
          .weights = hash_weights(*model.file),
          .layout = hash_layout(plan, options)};
}

std::string difference(const Fingerprint& a, const Fingerprint& b) {
  // A layout follows from the settings: the first difference is the cause.
  if (a.settings != b.settings) {
    return "another model (dimensions, rotary embedding, norms or windows differ)";
  }
  if (a.tensors != b.tensors) return "another model (names, types or shapes of tensors differ)";
  if (a.weights != b.weights) return "another version of the model (its weights differ)";
  if (a.layout != b.layout) return "the model under another plan or other options";
  return {};
}

}  // namespace shoal::runtime

// ModelConfig: what a decoder has to know about a model, whichever family and file it came from.
//
// One decoder runs every family: a family file (arch/) turns metadata into this list of layers.
// A value that load_model() hands out has passed validate(): no count is zero that is divided by,
// every head count fits its KV heads, and all products of two dimensions fit in 64 bits.
// Thread rule: plain values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace shoal::model {

// Which two elements of a head turn together.
enum class RopePairing {
  kInterleaved,  // (2i, 2i + 1): GGUF of the llama family, whose q and k rows were permuted
  kHalves,       // (i, i + dims/2): Hugging Face checkpoints, and Qwen in both formats
};

enum class RopeScaling {
  kNone,
  kLinear,   // frequencies divided by factor
  kLlama3,   // long wavelengths divided by factor, short ones kept, a ramp between
  kYarn,     // the same idea with rotations as the measure, and an attention factor
  kFactors,  // frequencies divided by the tensor ModelTensors::rope_factors
};

struct RopeConfig {
  RopePairing pairing = RopePairing::kHalves;
  uint32_t dims = 0;  // the first `dims` elements of each head turn; even
  float base = 10000.0F;
  RopeScaling scaling = RopeScaling::kNone;
  float factor = 1.0F;                 // linear, llama3, yarn
  uint32_t original_context = 0;       // llama3, yarn: the context length before the extension
  float low_frequency_factor = 1.0F;   // llama3
  float high_frequency_factor = 4.0F;  // llama3
  float beta_fast = 32.0F;             // yarn: rotations above which a frequency is kept
  float beta_slow = 1.0F;              // yarn: rotations below which it is divided by factor
  float attention_factor = 1.0F;       // yarn: cos and sin are multiplied by it
  bool yarn_truncate = true;           // yarn: the ramp's ends are rounded to whole dimensions
};

enum class AttentionKind { kGroupedQuery };
enum class FeedForwardKind { kGatedDense };

struct LayerSpec {
  AttentionKind attention = AttentionKind::kGroupedQuery;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;        // divides heads
  uint32_t head_dim = 0;        // of queries and keys
  uint32_t value_head_dim = 0;  // of values
  uint32_t sliding_window = 0;  // 0: all; else position p sees the positions q with p - q < window
  bool qkv_bias = false;        // bq, bk, bv are there
  bool qk_norm = false;         // RMS norm of each head of q and k before the rotation
  FeedForwardKind feed_forward = FeedForwardKind::kGatedDense;
  uint32_t ffn = 0;  // columns of gate and up; activation is SiLU
};

struct ModelConfig {
  std::string family;        // the family file: "llama", "mistral", "qwen2", "qwen3"
  std::string architecture;  // as the model file says it: "llama", "LlamaForCausalLM"
  std::string display_name;  // general.name, or the folder's name
  uint32_t hidden = 0;
  uint32_t vocab = 0;
  uint32_t context = 0;  // positions that the model was made for
  float norm_epsilon = 1e-5F;
  bool tied_embeddings = false;  // the output head is the embedding
  RopeConfig rope;
  std::vector<LayerSpec> layers;
};

// kRequest with the first rule that a config breaks.
Status validate(const ModelConfig& config);

}  // namespace shoal::model

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
#include "tensor/ops/rope.h"

namespace shoal::model {

// More than any published model; validate() refuses what is larger.
inline constexpr int64_t kLayersMax = 4096;
inline constexpr int64_t kHiddenMax = 1 << 20;
inline constexpr int64_t kHeadsMax = 1 << 16;
inline constexpr int64_t kHeadDimMax = 1 << 16;
inline constexpr int64_t kFfnMax = 1 << 24;
inline constexpr int64_t kVocabMax = 1 << 24;
inline constexpr int64_t kContextMax = 1 << 24;  // of models and of plans

enum class AttentionKind { kGroupedQuery };
enum class FeedForwardKind { kGatedDense };

// What the embedding of a text is made of: its tokens' last hidden states.
enum class Pooling : uint8_t { kMean, kLast };

struct LayerSpec {
  AttentionKind attention = AttentionKind::kGroupedQuery;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;        // divides heads
  uint32_t head_dim = 0;        // of queries and keys
  uint32_t value_head_dim = 0;  // of values; equals head_dim for now
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
  // Pairing: interleaved for GGUF of the llama family (its q and k rows were permuted), half-split
  // for Hugging Face checkpoints and for Qwen in both formats.
  tensor::RopeConfig rope;
  std::vector<LayerSpec> layers;
  // Of embeddings. kLast where the model says nothing: of tokens that see only what came before
  // them, the last alone has seen the whole text.
  Pooling pooling = Pooling::kLast;
  // What the model's embeddings need and nothing here computes, such as "the pooling 'cls'"; empty
  // where they can be made. The model answers all the same.
  std::string unserved_embedding;
};

// kRequest with the first rule that a config breaks.
Status validate(const ModelConfig& config);

}  // namespace shoal::model

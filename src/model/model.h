// Model: a file, its config and its tensors by role; and what its tokenizer is made from.
//
// load_model() is the whole way from a path to something that an engine can run; it reads headers
// and small tables only, the vocabulary not among them: most ranks need none. Every tensor in
// ModelTensors has the shape that the config asks for and a type that the kernels know. Ownership:
// pointers and spans live as long as the Model. Thread rule: immutable after loading.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/model_config.h"
#include "model/model_file.h"
#include "tensor/matrix.h"
#include "text/vocabulary.h"

namespace shoal::model {

// Row-major shapes; nullptr where the config says that the layer has none.
struct LayerTensors {
  const TensorInfo* attn_norm = nullptr;  // [hidden]
  const TensorInfo* wq = nullptr;         // [heads * head_dim, hidden]
  const TensorInfo* wk = nullptr;         // [kv_heads * head_dim, hidden]
  const TensorInfo* wv = nullptr;         // [kv_heads * value_head_dim, hidden]
  const TensorInfo* wo = nullptr;         // [hidden, heads * value_head_dim]
  const TensorInfo* bq = nullptr;         // [heads * head_dim]
  const TensorInfo* bk = nullptr;         // [kv_heads * head_dim]
  const TensorInfo* bv = nullptr;         // [kv_heads * value_head_dim]
  const TensorInfo* q_norm = nullptr;     // [head_dim]
  const TensorInfo* k_norm = nullptr;     // [head_dim]
  const TensorInfo* ffn_norm = nullptr;   // [hidden]
  const TensorInfo* w_gate = nullptr;     // [ffn, hidden]
  const TensorInfo* w_up = nullptr;       // [ffn, hidden]
  const TensorInfo* w_down = nullptr;     // [hidden, ffn]
};

struct ModelTensors {
  const TensorInfo* token_embedding = nullptr;  // [vocab, hidden]
  const TensorInfo* output_norm = nullptr;      // [hidden]
  const TensorInfo* output = nullptr;           // [vocab, hidden]; the embedding when tied
  std::vector<LayerTensors> layers;
};

// Where the tokenizer comes from.
struct TokenizerSource {
  // GGUF: the tokenizer.ggml keys. Nothing where the file has no vocabulary.
  std::optional<text::Vocabulary> vocabulary;
  // safetensors: the folder of tokenizer.json and tokenizer_config.json; empty for GGUF.
  std::string folder;
};

struct Model {
  std::unique_ptr<ModelFile> file;
  ModelConfig config;
  ModelTensors tensors;
};

// kRequest naming the file and the key or tensor that is missing, odd or not supported.
Result<std::unique_ptr<Model>> load_model(const std::string& path);

// A small tensor as floats: F32, F16 or BF16 (norms, biases).
Result<std::vector<float>> read_floats(const TensorInfo& tensor);
// The weight as the kernels take it; for a tensor of rank 2 of ModelTensors.
tensor::MatrixView matrix_view(const TensorInfo& tensor);

// The steps of load_model, for callers that want less (`shoal info`, `shoal plan`).
// Fills everything, rope.frequency_divisors (rope_freqs.weight) too.
Result<ModelConfig> read_config(const ModelFile& file);
Result<ModelTensors> resolve_tensors(const ModelFile& file, const ModelConfig& config);

// For whoever turns text into tokens.
Result<TokenizerSource> read_tokenizer_source(const ModelFile& file);
// GGUF: the model's own Jinja template; empty where it has none. A safetensors folder's template
// comes with its tokenizer (text::load_tokenizer_folder).
Result<std::string> read_chat_template(const ModelFile& file);

}  // namespace shoal::model

// Llama 1, 2 and 3, and what is built like them: SmolLM, and Mistral in GGUF files.
#include <fmt/format.h>

#include "model/arch/family.h"

namespace shoal::model {
namespace {

Status configure_gguf(const ConfigReader& reader, ModelConfig& config) {
  // The converter permutes the rows of q and k, so that pairs lie side by side.
  config.rope.pairing = tensor::RopePairing::kInterleaved;
  const std::string key = "llama.attention.sliding_window";
  ASSIGN_OR_RETURN(const auto window, reader.integer(key));
  if (window && *window != 0) {
    ASSIGN_OR_RETURN(const int64_t positions, reader.check_count(key, *window, kContextMax));
    for (LayerSpec& layer : config.layers) layer.sliding_window = static_cast<uint32_t>(positions);
  }
  for (size_t i = 0; i < config.layers.size(); ++i) {
    config.layers[i].qkv_bias = reader.file().find(fmt::format("blk.{}.attn_q.bias", i)) != nullptr;
  }
  return Status::ok();
}

Status configure(const ConfigReader& reader, ModelConfig& config) {
  if (reader.is_gguf()) return configure_gguf(reader, config);
  config.rope.pairing = tensor::RopePairing::kHalfSplit;
  RETURN_IF_ERROR(refuse_if_true(reader, "attention_bias", "a bias on the attention's output"));
  return refuse_if_true(reader, "mlp_bias", "biases in the feed-forward part");
}

}  // namespace

const Family kLlamaFamily = {"llama", "llama", "LlamaForCausalLM", 0, configure};

}  // namespace shoal::model

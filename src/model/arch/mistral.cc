// Mistral in safetensors: Llama with a sliding window. (GGUF files of Mistral say "llama".)
#include "model/arch/family.h"

namespace shoal::model {
namespace {

// The published configuration class has this window where config.json does not mention one; null
// means none.
constexpr int64_t kWindowDefault = 4096;

Status configure(const ConfigReader& reader, ModelConfig& config) {
  config.rope.pairing = tensor::RopePairing::kHalfSplit;
  const std::string key = "sliding_window";
  int64_t window = kWindowDefault;
  if (reader.has(key)) {
    ASSIGN_OR_RETURN(const auto value, reader.integer(key));
    if (!value) return Status::ok();
    ASSIGN_OR_RETURN(window, reader.check_count(key, *value, kContextMax));
  }
  for (LayerSpec& layer : config.layers) layer.sliding_window = static_cast<uint32_t>(window);
  return Status::ok();
}

}  // namespace

const Family kMistralFamily = {"mistral", "", "MistralForCausalLM", 0, configure};

}  // namespace shoal::model

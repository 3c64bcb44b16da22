// Qwen 3, dense: RMS norms on each head of q and k, a head size of its own, no biases.
#include "model/arch/family.h"

namespace shoal::model {
namespace {

// Of the published configuration class.
constexpr int64_t kHeadDimDefault = 128;

Status configure(const ConfigReader& reader, ModelConfig& config) {
  config.rope.pairing = tensor::RopePairing::kHalfSplit;
  for (LayerSpec& layer : config.layers) layer.qk_norm = true;
  if (!reader.is_gguf()) {
    RETURN_IF_ERROR(refuse_if_true(reader, "attention_bias", "a bias on the attention's output"));
  }
  return configure_qwen_window(reader, config);
}

}  // namespace

const Family kQwen3Family = {"qwen3", "qwen3", "Qwen3ForCausalLM", kHeadDimDefault, configure};

}  // namespace shoal::model

// Qwen 2 and 2.5, dense: biases on q, k and v; on some layers a sliding window, if it is turned on.
#include "model/arch/family.h"

namespace shoal::model {
namespace {

// Of the published configuration class.
constexpr int64_t kWindowDefault = 4096;
constexpr int64_t kFullLayersDefault = 28;

Status configure(const ConfigReader& reader, ModelConfig& config) {
  config.rope.pairing = tensor::RopePairing::kHalfSplit;
  for (LayerSpec& layer : config.layers) layer.qkv_bias = true;
  return configure_qwen_window(reader, config);
}

}  // namespace

Status configure_qwen_window(const ConfigReader& reader, ModelConfig& config) {
  // GGUF files of Qwen carry no window that is in use.
  if (reader.is_gguf()) return Status::ok();
  ASSIGN_OR_RETURN(const auto is_used, reader.boolean("use_sliding_window"));
  if (!is_used.value_or(false)) return Status::ok();
  int64_t window = kWindowDefault;
  if (reader.has("sliding_window")) {
    ASSIGN_OR_RETURN(const auto value, reader.integer("sliding_window"));
    if (!value) return Status::ok();
    ASSIGN_OR_RETURN(window, reader.check_count("sliding_window", *value, kContextMax));
  }
  ASSIGN_OR_RETURN(const auto types, reader.strings("layer_types"));
  if (types && types->size() != config.layers.size()) {
    return reader.refuse("layer_types", "must have one element for each layer");
  }
  ASSIGN_OR_RETURN(const auto full_layers, reader.integer("max_window_layers"));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const bool has_window =
        types ? (*types)[i] == "sliding_attention"
              : static_cast<int64_t>(i) >= full_layers.value_or(kFullLayersDefault);
    if (types && !has_window && (*types)[i] != "full_attention") {
      return reader.refuse("layer_types",
                           "has '" + (*types)[i] + "', which Shoal does not compute");
    }
    if (has_window) config.layers[i].sliding_window = static_cast<uint32_t>(window);
  }
  return Status::ok();
}

const Family kQwen2Family = {"qwen2", "qwen2", "Qwen2ForCausalLM", 0, configure};

}  // namespace shoal::model

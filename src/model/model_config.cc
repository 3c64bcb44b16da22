#include "model/model_config.h"

#include <fmt/format.h>

namespace shoal::model {
namespace {

Status check_range(std::string_view what, int64_t value, int64_t max) {
  if (value >= 1 && value <= max) return Status::ok();
  return Status::request(fmt::format("{} is {}, expected 1 to {}", what, value, max));
}

Status validate_layer(const LayerSpec& layer) {
  RETURN_IF_ERROR(check_range("the number of heads", layer.heads, kHeadsMax));
  RETURN_IF_ERROR(check_range("the number of KV heads", layer.kv_heads, layer.heads));
  RETURN_IF_ERROR(check_range("the head size", layer.head_dim, kHeadDimMax));
  RETURN_IF_ERROR(check_range("the feed-forward width", layer.ffn, kFfnMax));
  if (layer.heads % layer.kv_heads != 0) {
    return Status::request(
        fmt::format("{} heads cannot share {} KV heads evenly", layer.heads, layer.kv_heads));
  }
  if (layer.value_head_dim != layer.head_dim) {
    return Status::request("heads of values and of keys differ in size");
  }
  return Status::ok();
}

}  // namespace

Status validate(const ModelConfig& config) {
  RETURN_IF_ERROR(check_range("the hidden size", config.hidden, kHiddenMax));
  RETURN_IF_ERROR(check_range("the vocabulary's size", config.vocab, kVocabMax));
  RETURN_IF_ERROR(check_range("the context length", config.context, kContextMax));
  RETURN_IF_ERROR(
      check_range("the number of layers", static_cast<int64_t>(config.layers.size()), kLayersMax));
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const LayerSpec& layer = config.layers[i];
    if (const Status status = validate_layer(layer); !status.is_ok()) {
      return status.with_context(fmt::format("layer {}", i));
    }
    if (config.rope.rotary_dims > layer.head_dim) {
      return Status::request(fmt::format("layer {}: {} rotary dimensions in heads of {}", i,
                                         config.rope.rotary_dims, layer.head_dim));
    }
  }
  // The table's own rules: positive base and factor, an even number of dimensions.
  return tensor::RopeTable::create(config.rope).status();
}

}  // namespace shoal::model

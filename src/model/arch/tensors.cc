// Finding the tensors of a model by role, and checking their shapes and types.
#include <fmt/format.h>

#include <unordered_set>

#include "base/foreign/quote.h"
#include "model/arch/tensor_names.h"
#include "model/model.h"

namespace shoal::model {
namespace {

constexpr TensorNames kGgufNames = {
    .token_embedding = "token_embd.weight",
    .output_norm = "output_norm.weight",
    .output = "output.weight",
    .layer_prefix = "blk.",
    .attn_norm = "attn_norm.weight",
    .wq = "attn_q.weight",
    .wk = "attn_k.weight",
    .wv = "attn_v.weight",
    .wo = "attn_output.weight",
    .bq = "attn_q.bias",
    .bk = "attn_k.bias",
    .bv = "attn_v.bias",
    .q_norm = "attn_q_norm.weight",
    .k_norm = "attn_k_norm.weight",
    .ffn_norm = "ffn_norm.weight",
    .w_gate = "ffn_gate.weight",
    .w_up = "ffn_up.weight",
    .w_down = "ffn_down.weight",
    .ignored = "attn_rot_embd.weight",
};

constexpr TensorNames kHfNames = {
    .token_embedding = "model.embed_tokens.weight",
    .output_norm = "model.norm.weight",
    .output = "lm_head.weight",
    .layer_prefix = "model.layers.",
    .attn_norm = "input_layernorm.weight",
    .wq = "self_attn.q_proj.weight",
    .wk = "self_attn.k_proj.weight",
    .wv = "self_attn.v_proj.weight",
    .wo = "self_attn.o_proj.weight",
    .bq = "self_attn.q_proj.bias",
    .bk = "self_attn.k_proj.bias",
    .bv = "self_attn.v_proj.bias",
    .q_norm = "self_attn.q_norm.weight",
    .k_norm = "self_attn.k_norm.weight",
    .ffn_norm = "post_attention_layernorm.weight",
    .w_gate = "mlp.gate_proj.weight",
    .w_up = "mlp.up_proj.weight",
    .w_down = "mlp.down_proj.weight",
    .ignored = "self_attn.rotary_emb.inv_freq",
};

constexpr TensorNames without_prefix(TensorNames names) {
  constexpr std::string_view kPrefix = "model.";
  for (std::string_view* name : {&names.token_embedding, &names.output_norm, &names.layer_prefix}) {
    name->remove_prefix(kPrefix.size());
  }
  return names;
}

constexpr TensorNames kHfDecoderNames = without_prefix(kHfNames);

// Matrices may be quantized; vectors (norms, biases) are plain floats.
bool is_float(tensor::DType dtype) {
  return dtype == tensor::DType::kF32 || dtype == tensor::DType::kF16 ||
         dtype == tensor::DType::kBF16;
}

class Resolver {
 public:
  Resolver(const ModelFile& file, const ModelConfig& config)
      : file_(file), config_(config), names_(tensor_names(file)) {}

  Result<ModelTensors> resolve() {
    const Shape table{config_.vocab, config_.hidden};
    ModelTensors out;
    ASSIGN_OR_RETURN(out.token_embedding, need(std::string(names_.token_embedding), table));
    ASSIGN_OR_RETURN(out.output_norm, need(std::string(names_.output_norm), {config_.hidden}));
    out.output = out.token_embedding;
    if (!config_.tied_embeddings) {
      ASSIGN_OR_RETURN(out.output, need(std::string(names_.output), table));
    }
    for (size_t i = 0; i < config_.layers.size(); ++i) {
      layer_ = i;
      ASSIGN_OR_RETURN(LayerTensors layer, resolve_layer(config_.layers[i]));
      out.layers.push_back(layer);
    }
    RETURN_IF_ERROR(check_nothing_left());
    return out;
  }

 private:
  std::string layer_name(std::string_view name) const {
    return fmt::format("{}{}.{}", names_.layer_prefix, layer_, name);
  }

  Result<const TensorInfo*> need(const std::string& name, const Shape& shape) {
    const TensorInfo* info = file_.find(name);
    if (info == nullptr) {
      return Status::request(
          fmt::format("{}: tensor {} is missing (expected shape {}): the file is incomplete or its "
                      "settings are wrong",
                      file_.name(), quote(name), shape.to_string()));
    }
    const auto refuse = [&](const std::string& reason) {
      return Status::request(
          fmt::format("{}: tensor {} {}", file_.paths()[info->file], quote(name), reason));
    };
    if (info->shape != shape) {
      return refuse(
          fmt::format("has shape {}, expected {}", info->shape.to_string(), shape.to_string()));
    }
    const auto dtype = info->dtype();
    if (!dtype || !tensor::dtype_info(*dtype).is_supported) {
      return refuse(fmt::format("has type {}, which Shoal does not compute with; use a file in {}",
                                info->type.name, tensor::supported_dtype_names()));
    }
    if (shape.rank() == 1 && !is_float(*dtype)) {
      return refuse(fmt::format("has type {}, expected F32, F16 or BF16", info->type.name));
    }
    used_.insert(info);
    return info;
  }

  Status need_in_layer(const TensorInfo*& out, std::string_view name, const Shape& shape) {
    ASSIGN_OR_RETURN(out, need(layer_name(name), shape));
    return Status::ok();
  }

  Result<LayerTensors> resolve_layer(const LayerSpec& spec) {
    const uint64_t hidden = config_.hidden;
    const uint64_t q = uint64_t{spec.heads} * spec.head_dim;
    const uint64_t k = uint64_t{spec.kv_heads} * spec.head_dim;
    const uint64_t v = uint64_t{spec.kv_heads} * spec.value_head_dim;
    const uint64_t joined = uint64_t{spec.heads} * spec.value_head_dim;
    LayerTensors out;
    RETURN_IF_ERROR(need_in_layer(out.attn_norm, names_.attn_norm, {hidden}));
    RETURN_IF_ERROR(need_in_layer(out.wq, names_.wq, {q, hidden}));
    RETURN_IF_ERROR(need_in_layer(out.wk, names_.wk, {k, hidden}));
    RETURN_IF_ERROR(need_in_layer(out.wv, names_.wv, {v, hidden}));
    RETURN_IF_ERROR(need_in_layer(out.wo, names_.wo, {hidden, joined}));
    if (spec.qkv_bias) {
      RETURN_IF_ERROR(need_in_layer(out.bq, names_.bq, {q}));
      RETURN_IF_ERROR(need_in_layer(out.bk, names_.bk, {k}));
      RETURN_IF_ERROR(need_in_layer(out.bv, names_.bv, {v}));
    }
    if (spec.qk_norm) {
      RETURN_IF_ERROR(need_in_layer(out.q_norm, names_.q_norm, {spec.head_dim}));
      RETURN_IF_ERROR(need_in_layer(out.k_norm, names_.k_norm, {spec.head_dim}));
    }
    RETURN_IF_ERROR(need_in_layer(out.ffn_norm, names_.ffn_norm, {hidden}));
    RETURN_IF_ERROR(need_in_layer(out.w_gate, names_.w_gate, {spec.ffn, hidden}));
    RETURN_IF_ERROR(need_in_layer(out.w_up, names_.w_up, {spec.ffn, hidden}));
    RETURN_IF_ERROR(need_in_layer(out.w_down, names_.w_down, {hidden, spec.ffn}));
    return out;
  }

  // A tensor of a layer that no role has taken belongs to a computation that would be left out
  // without a word (a bias, one more norm): better refused than wrong.
  Status check_nothing_left() const {
    for (const TensorInfo& info : file_.tensors()) {
      if (!info.name.starts_with(names_.layer_prefix) || used_.contains(&info)) continue;
      if (info.name.ends_with(names_.ignored)) continue;
      return Status::request(fmt::format(
          "{}: tensor {} has no place in a model of the family {} with {} layers: Shoal cannot "
          "compute this model",
          file_.paths()[info.file], quote(info.name), config_.family, config_.layers.size()));
    }
    return Status::ok();
  }

  const ModelFile& file_;
  const ModelConfig& config_;
  const TensorNames& names_;
  size_t layer_ = 0;
  std::unordered_set<const TensorInfo*> used_;
};

}  // namespace

const TensorNames& tensor_names(const ModelFile& file) {
  if (file.format() == FileFormat::kGguf) return kGgufNames;
  const bool is_decoder = file.find(kHfNames.token_embedding) == nullptr &&
                          file.find(kHfDecoderNames.token_embedding) != nullptr;
  return is_decoder ? kHfDecoderNames : kHfNames;
}

Result<ModelTensors> resolve_tensors(const ModelFile& file, const ModelConfig& config) {
  return Resolver(file, config).resolve();
}

}  // namespace shoal::model

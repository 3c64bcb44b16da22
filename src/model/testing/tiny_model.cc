#include "model/testing/tiny_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/testing/raw_safetensors.h"

namespace shoal::model::testing {
namespace {

struct NamedShape {
  std::string gguf_name;
  std::string hf_name;
  Shape shape;
};

std::vector<NamedShape> tensors_of(const TinyModel& model) {
  const uint64_t hidden = model.hidden;
  const uint64_t kv = hidden / std::max(model.heads, 1U) * model.kv_heads;
  std::vector<NamedShape> out;
  out.push_back({"token_embd.weight", "model.embed_tokens.weight", {model.vocab, hidden}});
  out.push_back({"output_norm.weight", "model.norm.weight", {hidden}});
  if (!model.is_tied) out.push_back({"output.weight", "lm_head.weight", {model.vocab, hidden}});
  for (uint32_t i = 0; i < model.layers; ++i) {
    const auto add = [&](std::string_view gguf, std::string_view hf, const Shape& shape) {
      out.push_back({fmt::format("blk.{}.{}.weight", i, gguf),
                     fmt::format("model.layers.{}.{}.weight", i, hf), shape});
    };
    add("attn_norm", "input_layernorm", {hidden});
    add("attn_q", "self_attn.q_proj", {hidden, hidden});
    add("attn_k", "self_attn.k_proj", {kv, hidden});
    add("attn_v", "self_attn.v_proj", {kv, hidden});
    add("attn_output", "self_attn.o_proj", {hidden, hidden});
    add("ffn_norm", "post_attention_layernorm", {hidden});
    add("ffn_gate", "mlp.gate_proj", {model.ffn, hidden});
    add("ffn_up", "mlp.up_proj", {model.ffn, hidden});
    add("ffn_down", "mlp.down_proj", {hidden, model.ffn});
  }
  return out;
}

}  // namespace

std::span<const std::byte> zero_bytes(size_t count) {
  static const std::vector<std::byte> zeros(size_t{1} << 20);
  return std::span(zeros).first(count);
}

std::vector<std::byte> TinyModel::gguf() const {
  GgufWriter writer;
  writer.add_string("general.architecture", architecture);
  const auto add_count = [&](const std::string& key, uint32_t value) {
    if (std::ranges::find(omitted_keys, key) != omitted_keys.end()) return;
    writer.add_u32(architecture + "." + key, value);
  };
  add_count("block_count", layers);
  add_count("context_length", 128);
  add_count("embedding_length", hidden);
  add_count("feed_forward_length", ffn);
  add_count("attention.head_count", heads);
  add_count("attention.head_count_kv", kv_heads);
  writer.add_f32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5F);
  if (add_keys) add_keys(writer);
  for (const NamedShape& tensor : tensors_of(*this)) {
    if (std::ranges::find(omitted_tensors, tensor.gguf_name) != omitted_tensors.end()) continue;
    writer.add_tensor(tensor.gguf_name, tensor::DType::kF32, tensor.shape,
                      zero_bytes(tensor.shape.elements() * sizeof(float)));
  }
  if (add_tensors) add_tensors(writer);
  return writer.bytes();
}

std::string TinyModel::config_json() const {
  return fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "num_hidden_layers": {}, "hidden_size": {},)"
      R"( "num_attention_heads": {}, "num_key_value_heads": {}, "intermediate_size": {},)"
      R"( "max_position_embeddings": 128, "rms_norm_eps": 1e-05, "vocab_size": {},)"
      R"( "hidden_act": "silu", "tie_word_embeddings": {}}})",
      layers, hidden, heads, kv_heads, ffn, vocab, is_tied);
}

void TinyModel::write_safetensors(const TempFolder& folder, std::string_view config) const {
  folder.write("config.json", config);
  std::string header;
  size_t offset = 0;
  for (const NamedShape& tensor : tensors_of(*this)) {
    if (std::ranges::find(omitted_tensors, tensor.hf_name) != omitted_tensors.end()) continue;
    const size_t end = offset + tensor.shape.elements() * 2;
    std::string name = tensor.hf_name;
    constexpr std::string_view kPrefix = "model.";
    if (name.starts_with(kPrefix)) name.replace(0, kPrefix.size(), hf_prefix);
    header += fmt::format(R"({}"{}": {{"dtype": "BF16", "shape": {}, "data_offsets": [{}, {}]}})",
                          header.empty() ? "{" : ", ", name, tensor.shape.to_string(), offset, end);
    offset = end;
  }
  folder.write("model.safetensors", raw_safetensors(header + "}", offset));
}

}  // namespace shoal::model::testing

#include <fmt/format.h>

#include "model/model.h"
#include "model/testing/gguf_writer.h"
#include "model/testing/matchers.h"
#include "model/testing/temp_folder.h"
#include "model/testing/tiny_model.h"

namespace shoal::model {
namespace {

using testing::expect_ok;
using testing::expect_refused;
using testing::GgufWriter;
using testing::TempFolder;
using testing::TinyModel;

Result<std::unique_ptr<Model>> load(const TinyModel& model) {
  const TempFolder folder;
  return load_model(folder.write("m.gguf", model.gguf()));
}

// A tiny llama in safetensors whose config.json has `from` replaced by `to`.
Result<std::unique_ptr<Model>> load_hf(const std::string& from, const std::string& to) {
  const TempFolder folder;
  const TinyModel model;
  std::string config = model.config_json();
  const size_t at = config.find(from);
  CHECK(at != std::string::npos);
  model.write_safetensors(folder, config.replace(at, from.size(), to));
  return load_model(folder.path());
}

// With more keys at the end of config.json.
Result<std::unique_ptr<Model>> load_hf_with(const std::string& more) {
  return load_hf("}", ", " + more + "}");
}

void add_ints(GgufWriter& writer, std::string_view key, const std::vector<int32_t>& values) {
  writer.add_i32s(key, values);
}

template <typename T>
void add_integer(GgufWriter& writer, std::string_view key, ValueType type, T value) {
  writer.add_encoded(key, type, std::as_bytes(std::span(&value, 1)));
}

TEST(ModelCases, C10_files_without_a_usable_shape_are_refused_by_key) {
  const TempFolder folder;
  GgufWriter bare;
  bare.add_string("general.architecture", "llama");
  folder.write("bare.gguf", bare.bytes());
  expect_refused(load_model(folder.path("bare.gguf")), {"bare.gguf", "'llama.", "is missing"});
  GgufWriter nothing;
  folder.write("nothing.gguf", nothing.bytes());
  expect_refused(load_model(folder.path("nothing.gguf")), {"'general.architecture'", "is missing"});

  expect_refused(load({.layers = 0}), {"'llama.block_count'", "is 0"});
  expect_refused(load({.heads = 0}), {"'llama.attention.head_count'", "is 0"});
  expect_refused(load({.heads = 2, .kv_heads = 3}), {"'llama.attention.head_count_kv'", "is 3"});
  expect_refused(load({.heads = 3, .kv_heads = 2}), {"'llama.attention.head_count_kv'", "divide"});
  expect_refused(load({.heads = 5}), {"'llama.embedding_length'", "'llama.attention.key_length'"});
  expect_refused(load({.architecture = "zzz"}),
                 {"'general.architecture'", "'zzz'", "llama, qwen2"});
  TinyModel many;
  many.omitted_keys = {"block_count"};
  many.add_keys = [](GgufWriter& writer) { writer.add_u32("llama.block_count", 1U << 31); };
  expect_refused(load(many), {"'llama.block_count'", "is 2147483648"});
}

TEST(ModelCases, C10_every_needed_key_is_named_when_it_is_missing) {
  for (const std::string key : {"block_count", "context_length", "embedding_length",
                                "feed_forward_length", "attention.head_count"}) {
    TinyModel model;
    model.omitted_keys = {key};
    expect_refused(load(model), {"'llama." + key + "'", "is missing"});
  }
}

TEST(ModelCases, C10_layers_that_the_file_lacks_are_refused_by_tensor) {
  TinyModel model;
  model.omitted_keys = {"block_count"};
  model.add_keys = [](GgufWriter& writer) { writer.add_u32("llama.block_count", 32); };
  expect_refused(load(model), {"'blk.2.attn_norm.weight'", "is missing"});
  TinyModel partial;
  partial.omitted_tensors = {"blk.1.ffn_up.weight"};
  expect_refused(load(partial), {"'blk.1.ffn_up.weight'", "is missing"});
}

TEST(ModelCases, C16_head_counts_may_have_any_integer_width) {
  const auto with_kv = [](const std::function<void(GgufWriter&)>& add) {
    TinyModel model;
    model.omitted_keys = {"attention.head_count_kv"};
    model.add_keys = add;
    return load(model);
  };
  const std::string key = "llama.attention.head_count_kv";
  expect_ok(with_kv([&](GgufWriter& w) { add_integer<int32_t>(w, key, ValueType::kI32, 1); }));
  expect_ok(with_kv([&](GgufWriter& w) { add_integer<uint64_t>(w, key, ValueType::kU64, 1); }));
  expect_ok(with_kv([&](GgufWriter& w) { add_integer<uint8_t>(w, key, ValueType::kU8, 1); }));
  expect_ok(with_kv([&](GgufWriter& w) { add_ints(w, key, {1, 1}); }));
  expect_refused(with_kv([&](GgufWriter& w) { add_ints(w, key, {1, 1, 1}); }),
                 {"'" + key + "'", "3 elements", "2 layers"});
  expect_refused(with_kv([&](GgufWriter& w) { w.add_string(key, "1"); }),
                 {"'" + key + "'", "string"});
  expect_refused(with_kv([&](GgufWriter& w) { w.add_f32(key, 1.0F); }), {"'" + key + "'", "f32"});
  expect_refused(with_kv([&](GgufWriter& w) { w.add_f32s(key, std::vector<float>{1, 1}); }),
                 {"'" + key + "'"});
  expect_refused(with_kv([&](GgufWriter& w) { add_integer<int32_t>(w, key, ValueType::kI32, -1); }),
                 {"'" + key + "'", "is -1"});
  // Odd keys that nothing needs are ignored.
  TinyModel odd;
  odd.add_keys = [](GgufWriter& writer) {
    writer.add_string("general.file_type", "weird");
    writer.add_u32("general.name", 7);
  };
  expect_ok(load(odd));
}

TEST(ModelCases, C16_each_layer_may_have_its_own_kv_heads) {
  TinyModel model;
  model.omitted_keys = {"attention.head_count_kv"};
  model.add_keys = [](GgufWriter& writer) {
    add_ints(writer, "llama.attention.head_count_kv", {1, 3});
  };
  for (const std::string name : {"blk.1.attn_k.weight", "blk.1.attn_v.weight"}) {
    model.omitted_tensors.push_back(name);
  }
  model.add_tensors = [](GgufWriter& writer) {
    for (const std::string name : {"blk.1.attn_k.weight", "blk.1.attn_v.weight"}) {
      writer.add_tensor(name, tensor::DType::kF32, {24, 24}, testing::zero_bytes(24 * 24 * 4));
    }
  };
  const auto loaded = load(model);
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
  EXPECT_EQ((*loaded)->config.layers[0].kv_heads, 1U);
  EXPECT_EQ((*loaded)->config.layers[1].kv_heads, 3U);
}

TEST(ReadConfig, a_llama_in_gguf_is_described) {
  TinyModel model;
  model.add_keys = [](GgufWriter& writer) {
    writer.add_string("general.name", "Tiny");
    writer.add_f32("llama.rope.freq_base", 5000.0F);
    writer.add_u32("llama.rope.dimension_count", 6);
    writer.add_string("tokenizer.chat_template", "{{ messages }}");
  };
  const auto loaded = load(model);
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
  const ModelConfig& config = (*loaded)->config;
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.display_name, "Tiny");
  EXPECT_EQ(config.hidden, 24U);
  EXPECT_EQ(config.vocab, 11U);
  EXPECT_EQ(config.context, 128U);
  EXPECT_FLOAT_EQ(config.norm_epsilon, 1e-5F);
  EXPECT_TRUE(config.tied_embeddings);
  EXPECT_EQ(config.rope.pairing, tensor::RopePairing::kInterleaved);
  EXPECT_EQ(config.rope.rotary_dims, 6);
  EXPECT_EQ(config.rope.theta, 5000.0);
  ASSERT_EQ(config.layers.size(), 2U);
  EXPECT_EQ(config.layers[1].heads, 3U);
  EXPECT_EQ(config.layers[1].head_dim, 8U);
  EXPECT_EQ(config.layers[1].ffn, 40U);
  const ModelTensors& tensors = (*loaded)->tensors;
  EXPECT_EQ(tensors.output, tensors.token_embedding);
  EXPECT_EQ(tensors.layers[1].wk->name, "blk.1.attn_k.weight");
  EXPECT_EQ(tensors.layers[1].bq, nullptr);
  EXPECT_EQ(read_chat_template(*(*loaded)->file).value(), "{{ messages }}");
  const auto view = matrix_view(*tensors.layers[0].w_gate);
  EXPECT_EQ(view.rows, 40);
  EXPECT_EQ(view.cols, 24);
}

TEST(ReadConfig, tensors_that_no_role_takes_are_refused) {
  TinyModel model;
  model.add_tensors = [](GgufWriter& writer) {
    writer.add_tensor("blk.1.attn_output.bias", tensor::DType::kF32, {24}, testing::zero_bytes(96));
  };
  expect_refused(load(model), {"'blk.1.attn_output.bias'", "no place"});
  model.add_tensors = [](GgufWriter& writer) {
    writer.add_tensor("blk.1.attn_rot_embd.weight", tensor::DType::kF32, {4},
                      testing::zero_bytes(16));
  };
  expect_ok(load(model));
}

TEST(ReadConfig, shapes_and_types_of_tensors_are_checked) {
  const auto with = [](tensor::DType dtype, const Shape& shape, size_t bytes) {
    TinyModel model;
    model.omitted_tensors = {"blk.0.ffn_norm.weight"};
    model.add_tensors = [=](GgufWriter& writer) {
      writer.add_tensor("blk.0.ffn_norm.weight", dtype, shape, testing::zero_bytes(bytes));
    };
    return load(model);
  };
  expect_ok(with(tensor::DType::kF16, {24}, 48));
  expect_refused(with(tensor::DType::kF32, {25}, 100),
                 {"'blk.0.ffn_norm.weight'", "[25]", "expected [24]"});
  expect_refused(with(tensor::DType::kI32, {24}, 96), {"'blk.0.ffn_norm.weight'", "I32"});
}

TEST(ReadConfig, vocabulary_size_follows_the_embedding) {
  TinyModel model;
  model.add_keys = [](GgufWriter& writer) { writer.add_u32("llama.vocab_size", 12); };
  expect_refused(load(model), {"'llama.vocab_size'", "is 12", "11 rows"});
  TinyModel tokens;
  tokens.add_keys = [](GgufWriter& writer) {
    std::vector<std::string> texts(12);
    for (size_t i = 0; i < texts.size(); ++i) texts[i] = "t" + std::to_string(i);
    writer.add_string("tokenizer.ggml.model", "llama");
    writer.add_strings("tokenizer.ggml.tokens", texts);
    writer.add_f32s("tokenizer.ggml.scores", std::vector<float>(12));
  };
  expect_refused(load(tokens), {"tokenizer.ggml.tokens", "12 tokens", "11 rows"});
}

TEST(ReadConfig, rope_scalings_of_gguf_are_read) {
  const auto rope = [](const std::function<void(GgufWriter&)>& add) {
    TinyModel model;
    model.add_keys = add;
    const auto loaded = load(model);
    CHECK_MSG(loaded.is_ok(), loaded.status().message().c_str());
    return (*loaded)->config.rope;
  };
  const auto linear = rope([](GgufWriter& w) { w.add_f32("llama.rope.scale_linear", 4.0F); });
  EXPECT_EQ(linear.scaling, tensor::RopeScaling::kLinear);
  EXPECT_EQ(linear.factor, 4.0);
  const auto yarn = rope([](GgufWriter& w) {
    w.add_string("llama.rope.scaling.type", "yarn");
    w.add_f32("llama.rope.scaling.factor", 4.0F);
    w.add_u32("llama.rope.scaling.original_context_length", 32);
    w.add_f32("llama.rope.scaling.yarn_beta_fast", 16.0F);
  });
  EXPECT_EQ(yarn.scaling, tensor::RopeScaling::kYarn);
  EXPECT_EQ(yarn.original_context, 32.0);
  EXPECT_EQ(yarn.beta_fast, 16.0);
  EXPECT_NEAR(yarn.attention_factor, 0.1 * std::log(4.0) + 1.0, 1e-12);
  TinyModel odd;
  odd.add_keys = [](GgufWriter& w) { w.add_string("llama.rope.scaling.type", "longrope"); };
  expect_refused(load(odd), {"'llama.rope.scaling.type'", "'longrope'"});
  TinyModel factors;
  factors.add_tensors = [](GgufWriter& w) {
    w.add_tensor("rope_freqs.weight", tensor::DType::kF32, {3}, testing::zero_bytes(12));
  };
  expect_refused(load(factors), {"'rope_freqs.weight'", "[3]", "[4]"});
}

TEST(ReadConfig, a_llama_in_safetensors_is_described) {
  const auto loaded = load_hf_with(
      R"("rope_theta": 500000, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,)"
      R"( "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 16})");
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
  const ModelConfig& config = (*loaded)->config;
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.rope.pairing, tensor::RopePairing::kHalfSplit);
  EXPECT_EQ(config.rope.scaling, tensor::RopeScaling::kLlama3);
  EXPECT_EQ(config.rope.theta, 500000.0);
  EXPECT_EQ(config.rope.factor, 8.0);
  EXPECT_EQ(config.rope.original_context, 16.0);
  EXPECT_TRUE(config.tied_embeddings);
  const auto source = read_tokenizer_source(*(*loaded)->file);
  ASSERT_TRUE(source.is_ok());
  EXPECT_FALSE(source->vocabulary.has_value());
  EXPECT_FALSE(source->folder.empty());
}

TEST(ReadConfig, a_decoder_that_was_saved_alone_is_found_by_its_names) {
  const TempFolder folder;
  TinyModel model;
  model.hf_prefix = "";
  std::string config = model.config_json();
  const std::string whole = "LlamaForCausalLM";
  config.replace(config.find(whole), whole.size(), "LlamaModel");
  model.write_safetensors(folder, config);
  const auto loaded = load_model(folder.path());
  ASSERT_TRUE(loaded.is_ok()) << loaded.status().message();
  EXPECT_EQ((*loaded)->config.family, "llama");
  EXPECT_EQ((*loaded)->tensors.layers[1].wk->name, "layers.1.self_attn.k_proj.weight");
  model.omitted_tensors = {"model.layers.1.mlp.up_proj.weight"};
  model.write_safetensors(folder, config);
  expect_refused(load_model(folder.path()), {"'layers.1.mlp.up_proj.weight'", "is missing"});
}

TEST(ReadConfig, settings_of_a_checkpoint_that_would_be_ignored_are_refused) {
  expect_refused(load_hf_with(R"("attention_bias": true)"), {"config.json", "'attention_bias'"});
  expect_refused(load_hf_with(R"("mlp_bias": true)"), {"'mlp_bias'"});
  expect_refused(load_hf_with(R"("quantization_config": {"quant_method": "gptq"})"),
                 {"'quantization_config'", "GGUF"});
  expect_refused(load_hf("silu", "gelu"), {"'hidden_act'", "'gelu'"});
  expect_refused(load_hf_with(R"("rope_scaling": {"rope_type": "dynamic", "factor": 2.0})"),
                 {"'rope_scaling.rope_type'", "'dynamic'"});
  expect_refused(load_hf_with(R"("rope_scaling": {"type": "linear"})"),
                 {"'rope_scaling.factor'", "is missing"});
  expect_refused(load_hf("LlamaForCausalLM", "OtherModel"), {"'architectures'", "'OtherModel'"});
  expect_refused(load_hf("\"num_hidden_layers\": 2", "\"num_hidden_layers\": \"2\""),
                 {"'num_hidden_layers'", "string"});
  expect_refused(load_hf("\"hidden_size\": 24", "\"hidden_size\": null"),
                 {"'hidden_size'", "is missing"});
  expect_refused(load_hf_with(R"("rope_theta": -1.0)"), {"rotary base"});
}

TEST(ReadConfig, mistral_has_its_window_on_every_layer) {
  const auto window = [](const std::string& more) {
    const auto loaded = load_hf("LlamaForCausalLM\"]", "MistralForCausalLM\"]" + more);
    CHECK_MSG(loaded.is_ok(), loaded.status().message().c_str());
    CHECK((*loaded)->config.family == "mistral");
    return (*loaded)->config.layers[1].sliding_window;
  };
  EXPECT_EQ(window(R"(, "sliding_window": 8)"), 8U);
  EXPECT_EQ(window(R"(, "sliding_window": null)"), 0U);
  EXPECT_EQ(window(""), 4096U);
}

TEST(ReadConfig, a_folder_of_weights_without_config_is_explained) {
  const TempFolder folder;
  const TinyModel model;
  model.write_safetensors(folder, model.config_json());
  std::filesystem::remove(folder.path("config.json"));
  expect_refused(load_model(folder.path()), {"config.json"});
}

TEST(ValidateConfig, the_first_broken_rule_is_named) {
  ModelConfig config;
  config.hidden = 8;
  config.vocab = 4;
  config.context = 16;
  config.layers = {{.heads = 2, .kv_heads = 1, .head_dim = 4, .value_head_dim = 4, .ffn = 8}};
  config.rope.rotary_dims = 4;
  expect_ok(validate(config));
  ModelConfig odd = config;
  odd.rope.rotary_dims = 6;
  expect_refused(validate(odd), {"layer 0", "6 rotary"});
  odd = config;
  odd.layers[0].kv_heads = 3;
  expect_refused(validate(odd), {"KV heads"});
  odd = config;
  odd.layers[0].value_head_dim = 8;
  expect_refused(validate(odd), {"differ in size"});
  odd = config;
  odd.layers.clear();
  expect_refused(validate(odd), {"number of layers"});
}

}  // namespace
}  // namespace shoal::model

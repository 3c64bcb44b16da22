#include "model/model.h"

#include <string>

#include "model/testing/matchers.h"

// The checkpoints of tests/data/golden (its README says how they were made).
namespace shoal::model {
namespace {

std::string golden(const std::string& name) { return SHOAL_GOLDEN_FOLDER "/" + name; }

std::unique_ptr<Model> load(const std::string& path) {
  auto model = load_model(path);
  CHECK_MSG(model.is_ok(), model.status().message().c_str());
  return *std::move(model);
}

class GoldenModels : public ::testing::TestWithParam<std::string> {};

// Both forms of a checkpoint describe the same model, but for the pairs of the llama family.
TEST_P(GoldenModels, gguf_and_safetensors_agree) {
  const auto hf = load(golden(GetParam() + "/safetensors"));
  const auto gguf = load(golden(GetParam() + "/model.gguf"));
  const ModelConfig& a = hf->config;
  const ModelConfig& b = gguf->config;
  EXPECT_EQ(a.family, b.family);
  EXPECT_EQ(a.hidden, b.hidden);
  EXPECT_EQ(a.vocab, b.vocab);
  EXPECT_EQ(a.context, b.context);
  EXPECT_EQ(a.norm_epsilon, b.norm_epsilon);
  EXPECT_EQ(a.tied_embeddings, b.tied_embeddings);
  EXPECT_EQ(a.rope.rotary_dims, b.rope.rotary_dims);
  EXPECT_EQ(a.rope.theta, b.rope.theta);
  EXPECT_NEAR(a.rope.attention_factor, b.rope.attention_factor, 1e-6);
  EXPECT_EQ(a.rope.pairing, tensor::RopePairing::kHalfSplit);
  EXPECT_EQ(b.rope.pairing == tensor::RopePairing::kInterleaved, b.family == "llama");
  ASSERT_EQ(a.layers.size(), b.layers.size());
  for (size_t i = 0; i < a.layers.size(); ++i) {
    EXPECT_EQ(a.layers[i].heads, b.layers[i].heads);
    EXPECT_EQ(a.layers[i].kv_heads, b.layers[i].kv_heads);
    EXPECT_EQ(a.layers[i].head_dim, b.layers[i].head_dim);
    EXPECT_EQ(a.layers[i].ffn, b.layers[i].ffn);
    EXPECT_EQ(a.layers[i].qkv_bias, b.layers[i].qkv_bias);
    EXPECT_EQ(a.layers[i].qk_norm, b.layers[i].qk_norm);
    EXPECT_EQ(a.layers[i].sliding_window, b.layers[i].sliding_window);
    EXPECT_EQ(read_floats(*hf->tensors.layers[i].w_down).value(),
              read_floats(*gguf->tensors.layers[i].w_down).value());
    EXPECT_EQ(read_floats(*hf->tensors.layers[i].attn_norm).value(),
              read_floats(*gguf->tensors.layers[i].attn_norm).value());
  }
  EXPECT_EQ(read_floats(*hf->tensors.output).value(), read_floats(*gguf->tensors.output).value());
}

// Frequencies come out the same whether they were scaled by a rule or by a tensor of divisors.
TEST_P(GoldenModels, frequencies_agree) {
  const auto hf = tensor::RopeTable::create(load(golden(GetParam() + "/safetensors"))->config.rope);
  const auto gguf =
      tensor::RopeTable::create(load(golden(GetParam() + "/model.gguf"))->config.rope);
  ASSERT_TRUE(hf.is_ok() && gguf.is_ok());
  ASSERT_EQ(hf->pairs(), gguf->pairs());
  for (size_t i = 0; i < hf->inverse_frequencies().size(); ++i) {
    EXPECT_NEAR(hf->inverse_frequencies()[i] / gguf->inverse_frequencies()[i], 1.0, 1e-6) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenModels,
                         ::testing::Values("llama1", "llama2", "llama3", "qwen2", "qwen3", "smollm",
                                           "yarn"),
                         [](const auto& case_info) { return case_info.param; });

TEST(GoldenModel, llama3_is_scaled) {
  const auto hf = load(golden("llama3/safetensors"));
  EXPECT_EQ(hf->config.rope.scaling, tensor::RopeScaling::kLlama3);
  const auto gguf = load(golden("llama3/model.gguf"));
  EXPECT_EQ(gguf->config.rope.frequency_divisors.size(), 8U);
  EXPECT_EQ(gguf->config.rope.frequency_divisors.back(), 8.0F);
}

TEST(GoldenModel, yarn_is_scaled_in_both_spellings) {
  for (const std::string path : {"yarn/safetensors", "yarn/model.gguf"}) {
    const auto model = load(golden(path));
    EXPECT_EQ(model->config.rope.scaling, tensor::RopeScaling::kYarn) << path;
    EXPECT_EQ(model->config.rope.factor, 4.0);
    EXPECT_EQ(model->config.rope.original_context, 16.0);
  }
}

TEST(GoldenModel, windows_are_on_the_layers_that_have_them) {
  const auto mistral = load(golden("mistral/safetensors"));
  for (const LayerSpec& layer : mistral->config.layers) EXPECT_EQ(layer.sliding_window, 8U);
  const auto qwen = load(golden("qwen2_window/safetensors"));
  EXPECT_EQ(qwen->config.layers[0].sliding_window, 0U);
  EXPECT_EQ(qwen->config.layers[1].sliding_window, 8U);
  EXPECT_EQ(qwen->config.layers[2].sliding_window, 8U);
}

TEST(GoldenModel, qwen_has_its_biases_and_norms) {
  const auto qwen2 = load(golden("qwen2/model.gguf"));
  EXPECT_NE(qwen2->tensors.layers[0].bq, nullptr);
  EXPECT_EQ(qwen2->tensors.layers[0].q_norm, nullptr);
  const auto qwen3 = load(golden("qwen3/safetensors"));
  EXPECT_EQ(qwen3->tensors.layers[0].bq, nullptr);
  EXPECT_EQ(qwen3->tensors.layers[0].q_norm->shape, Shape{16});
  EXPECT_EQ(qwen3->config.layers[0].head_dim, 16U);
}

}  // namespace
}  // namespace shoal::model

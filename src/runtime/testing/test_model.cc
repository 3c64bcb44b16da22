#include "runtime/testing/test_model.h"

#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/check.h"
#include "model/testing/gguf_writer.h"
#include "tensor/quant/quantize.h"

namespace shoal::runtime::testing {
namespace {

std::vector<float> read_floats_file(const std::string& path, size_t count) {
  std::vector<float> values(count);
  std::ifstream in(path, std::ios::binary);
  in.read(reinterpret_cast<char*>(values.data()),
          static_cast<std::streamsize>(count * sizeof(float)));
  CHECK_MSG(in.good(), path.c_str());
  return values;
}

}  // namespace

std::vector<std::string> golden_names() {
  return {"llama1", "llama2", "llama3",       "mistral", "qwen2",
          "qwen3",  "smollm", "qwen2_window", "yarn"};
}

Golden load_golden(const std::string& name) {
  const std::string folder = std::string(SHOAL_GOLDEN_FOLDER) + "/" + name + "/";
  std::ifstream in(folder + "golden.json");
  CHECK_MSG(in.good(), folder.c_str());
  const nlohmann::json json = nlohmann::json::parse(in);
  Golden golden;
  golden.prompt = json.at("prompt").get<std::vector<TokenId>>();
  golden.vocab = json.at("vocab").get<size_t>();
  golden.logits = read_floats_file(folder + "logits.f32", golden.prompt.size() * golden.vocab);
  for (const char* form : {"gguf", "safetensors"}) {
    if (json.at(form).is_string()) golden.paths.push_back(folder + json[form].get<std::string>());
  }
  CHECK(!golden.paths.empty());
  return golden;
}

std::unique_ptr<model::Model> load_or_die(const std::string& path) {
  auto model = model::load_model(path);
  CHECK_MSG(model.is_ok(), model.status().message().c_str());
  return std::move(model).value();
}

std::unique_ptr<model::Model> RandomModel::make(const model::testing::TempFolder& folder) const {
  std::mt19937 random(seed);
  model::testing::GgufWriter writer;
  writer.add_string("general.architecture", "llama");
  writer.add_u32("llama.block_count", layers);
  writer.add_u32("llama.context_length", 4096);
  writer.add_u32("llama.embedding_length", hidden());
  writer.add_u32("llama.feed_forward_length", ffn);
  writer.add_u32("llama.attention.head_count", heads);
  writer.add_u32("llama.attention.head_count_kv", kv_heads);
  writer.add_f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);

  std::vector<std::unique_ptr<std::vector<std::byte>>> held;
  const auto add = [&](const std::string& name, uint32_t rows, uint32_t cols) {
    // Norms are vectors of about 1; a matrix keeps the size of what it multiplies.
    const bool is_norm = rows == 0;
    std::normal_distribution<float> normal(is_norm ? 1.0F : 0.0F,
                                           is_norm ? 0.1F : 1.0F / std::sqrt(float(cols)));
    std::vector<float> values(size_t{std::max(rows, 1U)} * cols);
    for (float& value : values) value = normal(random);
    if (change) change(name, values);
    const tensor::DType type = is_norm ? tensor::DType::kF32 : dtype;
    held.push_back(
        std::make_unique<std::vector<std::byte>>(tensor::quantize_matrix(type, values, cols)));
    const model::Shape shape = is_norm ? model::Shape{cols} : model::Shape{rows, cols};
    writer.add_tensor(name, type, shape, *held.back());
  };
  add("token_embd.weight", vocab, hidden());
  add("output_norm.weight", 0, hidden());
  add("output.weight", vocab, hidden());
  for (uint32_t layer = 0; layer < layers; ++layer) {
    const auto name = [&](const char* part) {
      return fmt::format("blk.{}.{}.weight", layer, part);
    };
    add(name("attn_norm"), 0, hidden());
    add(name("attn_q"), hidden(), hidden());
    add(name("attn_k"), kv_heads * head_dim, hidden());
    add(name("attn_v"), kv_heads * head_dim, hidden());
    add(name("attn_output"), hidden(), hidden());
    add(name("ffn_norm"), 0, hidden());
    add(name("ffn_gate"), ffn, hidden());
    add(name("ffn_up"), ffn, hidden());
    add(name("ffn_down"), hidden(), ffn);
  }
  return load_or_die(folder.write("model.gguf", writer.bytes()));
}

}  // namespace shoal::runtime::testing

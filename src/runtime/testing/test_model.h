// Models for tests: the golden checkpoints, and random ones of any type and shape.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/testing/temp_folder.h"
#include "runtime/token.h"
#include "tensor/dtype.h"

namespace shoal::runtime::testing {

// A case of tests/data/golden (its README says how it was made).
struct Golden {
  std::vector<TokenId> prompt;
  size_t vocab = 0;
  std::vector<float> logits;       // [prompt, vocab], of a reference that is not ours
  std::vector<std::string> paths;  // of the same model as GGUF, where it can be, and safetensors
};
std::vector<std::string> golden_names();
Golden load_golden(const std::string& name);

// A llama with normally distributed weights, written as GGUF.
struct RandomModel {
  tensor::DType dtype = tensor::DType::kF32;
  uint32_t layers = 2;
  uint32_t head_dim = 16;
  uint32_t heads = 4;
  uint32_t kv_heads = 2;
  uint32_t ffn = 96;
  uint32_t vocab = 200;
  uint32_t seed = 1;
  // Changes the floats of a tensor before they are quantized.
  std::function<void(const std::string& name, std::vector<float>& values)> change;

  uint32_t hidden() const { return head_dim * heads; }
  std::unique_ptr<model::Model> make(const model::testing::TempFolder& folder) const;
};

// CHECKs that it loads.
std::unique_ptr<model::Model> load_or_die(const std::string& path);

}  // namespace shoal::runtime::testing

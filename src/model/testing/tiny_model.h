// TinyModel: a llama of two layers in GGUF or safetensors form, with knobs to break it.
//
// Weights are a fixed pattern: the file loads, the text it would write means nothing.
// Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/testing/gguf_writer.h"
#include "model/testing/temp_folder.h"

namespace shoal::model::testing {

struct TinyModel {
  std::string architecture = "llama";
  uint32_t layers = 2;
  uint32_t hidden = 24;
  uint32_t heads = 3;
  uint32_t kv_heads = 1;
  uint32_t ffn = 40;
  uint32_t vocab = 11;
  bool is_tied = true;
  std::string hf_prefix = "model.";  // of the decoder's tensors in safetensors

  // GGUF: these keys (without the architecture) are left out; add_keys puts others in their place.
  std::vector<std::string> omitted_keys = {};
  std::function<void(GgufWriter&)> add_keys = {};
  // Tensors left out, and what add_tensors puts in.
  std::vector<std::string> omitted_tensors = {};
  std::function<void(GgufWriter&)> add_tensors = {};

  std::vector<std::byte> gguf() const;
  // config.json and model.safetensors, without a tokenizer.
  void write_safetensors(const TempFolder& folder, std::string_view config) const;
  // The config.json that fits.
  std::string config_json() const;
};

// Zeros that live as long as the process, for tensors of tests (at most 1 MiB).
std::span<const std::byte> zero_bytes(size_t count);

}  // namespace shoal::model::testing

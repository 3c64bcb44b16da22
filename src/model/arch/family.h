// Family: what one family of models adds to the settings that all of them share.
//
// read_config() first fills a ModelConfig from the common keys, then calls the family's configure.
// The families are listed in one table (families.cc); a new one is a file here, a line there and a
// golden test. Thread rule: constant data and pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "model/arch/config_reader.h"
#include "model/model_config.h"

namespace shoal::model {

struct Family {
  std::string_view name;
  std::string_view gguf_architecture;  // general.architecture; empty: none of its own
  std::string_view hf_architecture;    // architectures[0] of config.json
  int64_t head_dim_default;            // where config.json has none; 0: hidden / heads
  Status (*configure)(const ConfigReader& reader, ModelConfig& config);
};

extern const Family kLlamaFamily;    // Llama 1 to 3, SmolLM, and Mistral in GGUF
extern const Family kMistralFamily;  // Mistral in safetensors
extern const Family kQwen2Family;    // Qwen 2 and 2.5, dense
extern const Family kQwen3Family;    // Qwen 3, dense

std::span<const Family* const> families();
// The family of a general.architecture or an architectures[0]; nullptr where there is none.
const Family* find_family(FileFormat format, std::string_view architecture);

// Helpers for more than one family.

// Qwen's sliding window: layer_types, or use_sliding_window with max_window_layers.
Status configure_qwen_window(const ConfigReader& reader, ModelConfig& config);
// kRequest where the key asks for something that no kernel does.
Status refuse_if_true(const ConfigReader& reader, const std::string& key, std::string_view meaning);

}  // namespace shoal::model

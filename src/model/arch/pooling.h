// How a model's embeddings are pooled: GGUF's pooling_type, or sentence-transformers' files.
//
// GGUF: the key "ARCHITECTURE.pooling_type", the numbers of llama.cpp's enum llama_pooling_type.
// Safetensors: 1_Pooling/config.json and modules.json beside the weights, as sentence-transformers
// writes them.
// Thread rule: pure functions.
#pragma once

#include "base/status.h"
#include "model/arch/config_reader.h"
#include "model/model_config.h"

namespace shoal::model {

// Fills config.pooling and config.unserved_embedding, where the model says something.
Status read_pooling(const ConfigReader& reader, ModelConfig& config);

}  // namespace shoal::model

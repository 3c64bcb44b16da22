// Rotary settings of GGUF metadata and of config.json, in both of its spellings.
//
// Thread rule: pure functions.
#pragma once

#include "base/status.h"
#include "model/arch/config_reader.h"
#include "model/model_config.h"

namespace shoal::model {

// Fills config.rope but its pairing, which the family knows. Needs config.layers and
// config.context.
Status read_rope(const ConfigReader& reader, ModelConfig& config);

}  // namespace shoal::model

// The tokenizer's vocabulary as GGUF metadata holds it: the tokenizer.ggml keys.
//
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <string_view>

#include "base/status.h"
#include "model/gguf/metadata.h"
#include "text/vocabulary.h"

namespace shoal::model {

// nullopt where there is no tokenizer.ggml.model. kRequest naming `file_name` and the key where an
// element type, a length or an id is wrong: what comes back has passed text::validate().
Result<std::optional<text::Vocabulary>> read_vocabulary(const GgufMetadata& metadata,
                                                        std::string_view file_name);

}  // namespace shoal::model

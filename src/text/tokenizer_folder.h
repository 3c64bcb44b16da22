// TokenizerFolder: everything about text that a model's folder holds, weights or not.
//
// Reads tokenizer.json (needed), tokenizer_config.json, special_tokens_map.json,
// generation_config.json and chat_template.jinja. Thread rule: a value of immutable parts.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace shoal::text {

struct TokenizerFolder {
  std::unique_ptr<Tokenizer> tokenizer;         // never null
  std::unique_ptr<ChatTemplate> chat_template;  // null when there is none, or it is broken
  std::string chat_template_source;             // empty when there is none
  Status chat_template_status;                  // why there is no template although a file has one
};

// kRequest, naming the file, when there is no tokenizer.json or a file is malformed. A broken chat
// template does not fail the folder: plain completion still works.
Result<TokenizerFolder> load_tokenizer_folder(const std::string& folder);

}  // namespace shoal::text

// TextParts: a model's tokenizer and chat template, from whichever file it comes.
//
// Thread rule: values of immutable parts.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "cli/support/json_output.h"
#include "model/model.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace shoal::cli {

struct TextParts {
  std::unique_ptr<text::Tokenizer> tokenizer;         // never null
  std::unique_ptr<text::ChatTemplate> chat_template;  // null: none, or broken
  std::string chat_template_source;                   // empty where the model has none
  Status chat_template_status;                        // why a template that is there is unusable
};

// From a model file, a folder that holds one, or a folder with a tokenizer and no weights.
Result<TextParts> load_text(const std::string& path);

// The text parts of an opened model.
Result<TextParts> make_text(const model::ModelFile& file);

// kRequest "WHAT is not UTF-8 at byte N".
Status check_utf8(std::string_view what, std::string_view text);

// One conversation as the ids that the model is to continue. kRequest where there is no usable
// template, saying what to do instead, and where a message is not UTF-8.
struct RenderedPrompt {
  std::string text;
  std::vector<int32_t> ids;
};
Result<RenderedPrompt> render_chat(const TextParts& text, const Json& messages);

}  // namespace shoal::cli

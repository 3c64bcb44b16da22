// What the chats of all APIs share: from a conversation to a prompt, from there to choices whose
// answers are read in the model's own format.
//
// Thread rule: any thread; both may take milliseconds to seconds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/openai/generation_options.h"
#include "server/service.h"
#include "server/tools/tool_options.h"

namespace shoal::server {

// Whether the model is to think before it answers, and how long.
struct ThinkingOptions {
  std::optional<bool> is_wanted{};
  std::optional<std::string> effort{};  // "low", ...; "none" is no thinking
  std::string param{};                  // the field that errors name
  bool is_needed = true;                // else a model that does not think answers without
};

// From a field that says how long to think, as OpenAI's APIs have it.
ThinkingOptions read_effort(Fields* fields, std::string_view name);

struct ChatInput {
  Json template_input{};  // messages, and variables of the template, which win
  ToolOptions tools{};
  ThinkingOptions thinking{};
};

struct ChatPrompt {
  std::vector<runtime::TokenId> ids{};
  text::PromptThought thought = text::PromptThought::kNone;  // that the answer may begin with
};

// 400 where the template refuses the conversation, or the model cannot think as it is asked to.
ApiResult<ChatPrompt> render_conversation(const ServedModel& model, ChatInput input);

// Choices whose calls follow a grammar. 400 where a schema cannot be one and is needed: calls are
// forced, or a function is strict.
ApiResult<std::vector<Choice>> chat_choices(const ServedModel& model,
                                            const GenerationOptions& options,
                                            const ToolOptions& tools, const ChatPrompt& prompt);

}  // namespace shoal::server

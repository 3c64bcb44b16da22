#include "server/chat.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/generate/thought_grammar.h"
#include "server/tools/tool_grammar.h"
#include "server/tools/tool_prompt.h"

namespace shoal::server {
namespace {

ApiError thinking_error(const std::string& param, std::string_view why) {
  return {.message = fmt::format("{}: {}", param, why),
          .param = param,
          .code = "unsupported_parameter"};
}

std::optional<bool> wants_thinking(const ThinkingOptions& thinking) {
  return thinking.effort ? std::optional(*thinking.effort != "none") : thinking.is_wanted;
}

std::optional<ApiError> put_thinking(const ThinkingOptions& thinking,
                                     const text::AnswerFormat& format, Json* input) {
  const auto put = [input](std::string_view name, Json value) {
    const std::string key(name);
    if (!input->contains(key)) (*input)[key] = std::move(value);
  };
  if (thinking.effort && format.reads_reasoning_effort) put("reasoning_effort", *thinking.effort);
  const auto is_wanted = wants_thinking(thinking);
  if (!is_wanted) return std::nullopt;
  const std::string_view variable = format.thinking_variable;
  if (!variable.empty()) {
    put(variable, *is_wanted);
    return std::nullopt;
  }
  if (!*is_wanted || format.reads_reasoning_effort) return std::nullopt;
  if (format.thoughts == text::ThoughtFormat::kNone) {
    if (!thinking.is_needed) return std::nullopt;
    return thinking_error(thinking.param, "this model does not think before it answers");
  }
  if (!thinking.effort) return std::nullopt;
  return thinking_error(thinking.param, "this model always thinks, as long as it likes");
}

AnswerReading reading_of(const ServedModel& model, const ToolOptions& tools) {
  AnswerReading reading{.format = model.format};
  const bool has_calls = tools.are_offered();
  if (has_calls) {
    for (const Tool& tool : tools.tools) reading.options.functions.insert(tool.name);
    reading.ends_after_call = tools.is_single_call();
  }
  for (const std::string_view mark : text::format_marks(model.format, has_calls)) {
    if (const auto id = model.tokenizer->find_control_token(mark)) {
      reading.shown_tokens.push_back(*id);
    }
  }
  return reading;
}

// Makes calls follow their schemas; *are_bound: they do.
std::optional<ApiError> constrain_calls(const ServedModel& model, const ToolOptions& tools,
                                        text::PromptThought thought, std::vector<Choice>* choices,
                                        bool* are_bound) {
  const bool is_strict = std::ranges::any_of(tools.tools, &Tool::is_strict);
  auto source = tool_grammar(tools, model.format, *model.tokenizer, thought);
  if (!source) {
    if (!is_strict) return std::nullopt;
    return ApiError{.message = fmt::format("{}: strict goes with tool_choice \"required\" or a "
                                           "function's name only for this model, whose calls "
                                           "cannot be told from text in time",
                                           tools.param),
                    .param = tools.param,
                    .code = "unsupported_parameter"};
  }
  auto error = constrain(
      *model.grammars, AnswerGrammar{.source = std::move(*source), .param = tools.param}, choices);
  *are_bound = !error.has_value();
  // A schema with words that no grammar has is a help for the model all the same.
  return tools.are_forced() || is_strict ? error : std::nullopt;
}

}  // namespace

ThinkingOptions read_effort(Fields* fields, std::string_view name) {
  return {.effort = fields->choice(name, {"none", "minimal", "low", "medium", "high", "xhigh"}),
          .param = fields->path_of(name)};
}

ApiResult<ChatPrompt> render_conversation(const ServedModel& model, ChatInput input) {
  if (model.chat_template == nullptr) {
    return ApiError{.message = model.no_chat, .code = "no_chat_template"};
  }
  Json& json = input.template_input;
  if (auto error = put_thinking(input.thinking, model.format, &json)) return std::move(*error);
  put_tools(input.tools, model.format, &json);
  if (!json.contains("add_generation_prompt")) json["add_generation_prompt"] = true;
  const auto text = model.chat_template->render(json_text(json));
  if (!text.is_ok()) return ApiError{.message = text.status().message(), .param = "messages"};
  auto ids = model.tokenizer->encode_chat(*text);
  if (!ids.is_ok()) return ApiError{.message = ids.status().message(), .param = "messages"};
  ChatPrompt prompt{.ids = std::move(ids).value(),
                    .thought = text::prompt_thought(model.format, *text)};
  // Who wants none gets none, unless the template has begun one all the same.
  const bool is_optional = prompt.thought == text::PromptThought::kOptional;
  if (is_optional && wants_thinking(input.thinking) == false) {
    prompt.thought = text::PromptThought::kNone;
  }
  return prompt;
}

ApiResult<std::vector<Choice>> chat_choices(const ServedModel& model,
                                            const GenerationOptions& options,
                                            const ToolOptions& tools, const ChatPrompt& prompt) {
  std::vector<Choice> choices =
      make_choices(options, prompt.ids, model.tokenizer->special().end_of_generation);
  AnswerReading reading = reading_of(model, tools);
  reading.options.starts_in_thought = prompt.thought == text::PromptThought::kOpen;
  if (tools.are_offered()) {
    // A forced answer is a call, which has a form already.
    if (options.grammar && !tools.are_forced()) {
      return ApiError{
          .message = fmt::format("{}: does not go with tools, unless tool_choice forces a call or "
                                 "is \"none\"",
                                 options.grammar->param),
          .param = options.grammar->param,
          .code = "unsupported_parameter"};
    }
    if (auto error = constrain_calls(model, tools, prompt.thought, &choices,
                                     &reading.options.are_calls_bound)) {
      return std::move(*error);
    }
  } else if (options.grammar) {
    const AnswerGrammar grammar{.source = behind_thought(options.grammar->source, model.format,
                                                         prompt.thought, *model.tokenizer),
                                .param = options.grammar->param};
    if (auto error = constrain(*model.grammars, grammar, &choices)) return std::move(*error);
  }
  for (Choice& choice : choices) choice.reading = reading;
  return choices;
}

}  // namespace shoal::server

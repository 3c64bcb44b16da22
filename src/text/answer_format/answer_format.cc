#include "text/answer_format/answer_format.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "text/answer_format/call_parser.h"
#include "text/answer_format/parsers.h"

namespace shoal::text {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_name_byte(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// The names that stand in a template's tags, outside of quotes: variables, with `is_member` those
// behind a point, and Jinja's own words.
template <typename Visit>
void visit_names(std::string_view source, const Visit& visit) {
  size_t at = 0;
  while (true) {
    const size_t open = source.find('{', at);
    if (open == std::string_view::npos || open + 1 >= source.size()) return;
    const char kind = source[open + 1];
    at = open + 1;
    if (kind == '#') at = std::min(source.find("#}", open + 2), source.size());
    if (kind != '%' && kind != '{') continue;
    const std::string_view close = kind == '%' ? "%}" : "}}";
    size_t i = open + 2;
    while (i < source.size() && !source.substr(i).starts_with(close)) {
      const char c = source[i];
      if (c == '"' || c == '\'') {
        for (++i; i < source.size() && source[i] != c; ++i) i += source[i] == '\\' ? 1 : 0;
        ++i;
      } else if (is_name_byte(c)) {
        const size_t begin = i;
        while (i < source.size() && is_name_byte(source[i])) ++i;
        visit(source.substr(begin, i - begin), begin > 0 && source[begin - 1] == '.');
      } else {
        ++i;
      }
    }
    at = i;
  }
}

bool reads(std::string_view source, std::string_view variable, bool is_member) {
  bool found = false;
  visit_names(source, [&](std::string_view name, bool is_behind_point) {
    found = found || (name == variable && is_behind_point == is_member);
  });
  return found;
}

// What the template itself declares, if it is one of the known formats.
bool find_calls(std::string_view source, CallFormat* format) {
  if (has(source, HarmonyMarks::kChannel)) {
    *format = CallFormat::kHarmony;
  } else if (has(source, MistralMarks::kCalls)) {
    *format = has(source, MistralMarks::kArguments) ? CallFormat::kMistralNamed
                                                    : CallFormat::kMistralList;
  } else if (has(source, "tool▁call▁begin")) {
    *format = has(source, "```json") ? CallFormat::kDeepSeekFence : CallFormat::kDeepSeek;
  } else if (has(source, HermesMarks::kCall) && !has(source, "<function=") &&
             !has(source, "<arg_key>")) {
    *format = CallFormat::kHermes;
  } else if (has(source, Llama3Marks::kPythonTag) ||
             (has(source, "<|start_header_id|>") && has(source, "\"parameters\""))) {
    *format = CallFormat::kLlama3;
  } else {
    return false;
  }
  return true;
}

ThoughtFormat find_thoughts(std::string_view source) {
  if (has(source, HarmonyMarks::kChannel)) return ThoughtFormat::kHarmony;
  if (has(source, "[THINK]")) return ThoughtFormat::kBracketThink;
  if (has(source, "<think>") || has(source, "</think>")) return ThoughtFormat::kThink;
  return ThoughtFormat::kNone;
}

std::vector<std::string_view> call_marks(CallFormat format) {
  switch (format) {
    case CallFormat::kHermes:
      return {HermesMarks::kCall, HermesMarks::kCallEnd};
    case CallFormat::kLlama3:
      return {Llama3Marks::kPythonTag};
    case CallFormat::kMistralList:
    case CallFormat::kMistralNamed:
      return {MistralMarks::kCalls, MistralMarks::kArguments, MistralMarks::kCallId};
    case CallFormat::kDeepSeekFence:
    case CallFormat::kDeepSeek:
      return {DeepSeekMarks::kCalls, DeepSeekMarks::kCallsEnd, DeepSeekMarks::kCall,
              DeepSeekMarks::kCallEnd, DeepSeekMarks::kSeparator};
    case CallFormat::kHarmony:
      return {HarmonyMarks::kStart, HarmonyMarks::kChannel, HarmonyMarks::kConstrain,
              HarmonyMarks::kMessage, HarmonyMarks::kEnd};
  }
  return {};
}

}  // namespace

AnswerFormat find_answer_format(std::string_view template_source) {
  AnswerFormat format;
  const bool is_known = find_calls(template_source, &format.calls);
  format.thoughts = find_thoughts(template_source);
  format.has_tools = is_known && reads(template_source, "tools", false);
  format.has_call_history = is_known && has(template_source, "tool_calls");
  for (const std::string_view variable : {"thinking", "enable_thinking"}) {
    if (reads(template_source, variable, false)) format.thinking_variable = variable;
  }
  format.reads_reasoning_effort = reads(template_source, "reasoning_effort", false);
  format.reads_message_thinking = reads(template_source, "thinking", true);
  format.wants_short_call_ids = has(template_source, MistralMarks::kCalls);
  return format;
}

std::string_view name(CallFormat format) {
  switch (format) {
    case CallFormat::kHermes:
      return "hermes";
    case CallFormat::kLlama3:
      return "llama3";
    case CallFormat::kMistralList:
    case CallFormat::kMistralNamed:
      return "mistral";
    case CallFormat::kDeepSeekFence:
    case CallFormat::kDeepSeek:
      return "deepseek";
    case CallFormat::kHarmony:
      return "harmony";
  }
  return "hermes";
}

std::string_view name(ThoughtFormat format) {
  switch (format) {
    case ThoughtFormat::kNone:
      return "none";
    case ThoughtFormat::kThink:
      return "think";
    case ThoughtFormat::kBracketThink:
      return "bracket-think";
    case ThoughtFormat::kHarmony:
      return "harmony";
  }
  return "none";
}

ThoughtMarks thought_marks(ThoughtFormat format) {
  switch (format) {
    case ThoughtFormat::kThink:
      return {.open = "<think>", .close = "</think>"};
    case ThoughtFormat::kBracketThink:
      return {.open = "[THINK]", .close = "[/THINK]"};
    case ThoughtFormat::kNone:
    case ThoughtFormat::kHarmony:
      break;
  }
  return {};
}

std::vector<std::string_view> format_marks(const AnswerFormat& format, bool has_calls) {
  std::vector<std::string_view> marks;
  const ThoughtMarks thoughts = thought_marks(format.thoughts);
  if (!thoughts.open.empty()) marks = {thoughts.open, thoughts.close};
  const std::vector<std::string_view> calls = call_marks(format.calls);
  // Harmony's are those of thoughts too.
  if (has_calls || format.thoughts == ThoughtFormat::kHarmony) {
    marks.insert(marks.end(), calls.begin(), calls.end());
  }
  return marks;
}

PromptThought prompt_thought(const AnswerFormat& format, std::string_view prompt) {
  if (format.thoughts == ThoughtFormat::kNone) return PromptThought::kNone;
  const ThoughtMarks marks = thought_marks(format.thoughts);
  if (marks.open.empty()) return PromptThought::kOptional;
  const std::string_view text = trim(prompt);
  if (text.ends_with(marks.open)) return PromptThought::kOpen;
  return text.ends_with(marks.close) ? PromptThought::kNone : PromptThought::kOptional;
}

std::unique_ptr<AnswerParser> make_answer_parser(const AnswerFormat& format,
                                                 AnswerParserOptions options) {
  const bool starts_in_thought = options.starts_in_thought;
  const ThoughtMarks marks = thought_marks(format.thoughts);
  std::unique_ptr<AnswerParser> parser;
  if (format.calls == CallFormat::kHarmony) return make_harmony_parser(std::move(options));
  if (options.functions.empty()) {
    parser = make_plain_parser();
  } else if (format.calls == CallFormat::kLlama3) {
    parser = make_llama3_parser(std::move(options));
  } else if (name(format.calls) == "mistral") {
    parser = make_mistral_parser(std::move(options));
  } else if (name(format.calls) == "deepseek") {
    parser = make_deepseek_parser(std::move(options));
  } else {
    parser = make_hermes_parser(std::move(options));
  }
  if (marks.open.empty()) return parser;
  return make_thought_parser(marks, starts_in_thought, std::move(parser));
}

}  // namespace shoal::text

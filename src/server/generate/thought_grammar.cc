#include "server/generate/thought_grammar.h"

#include <fmt/format.h>

#include <utility>

#include "server/api/fields.h"

namespace shoal::server {

using text::HarmonyMarks;
using text::PromptThought;

std::string LarkRules::mark(std::string_view text) const {
  const auto id = tokenizer_.find_control_token(text);
  return id ? fmt::format("<[{}]>", *id) : json_text(text);
}

std::string LarkRules::first_mark(std::string_view text) {
  if (is_control(text)) return mark(text);
  rules_ += fmt::format("first_mark[lazy]: {}\n", json_text(text));
  return "first_mark";
}

std::string LarkRules::up_to(std::string_view text) {
  if (is_control(text)) {
    rule("any_text", "/(?s:.*)/");
    return "any_text " + mark(text);
  }
  // The shortest text that ends so.
  rules_ += fmt::format("up_to_mark[suffix={}]: /(?s:.*)/\n", json_text(text));
  return "up_to_mark";
}

void LarkRules::rule(std::string_view name, std::string_view body) {
  rules_ += fmt::format("{}: {}\n", name, body);
}

std::string thought_rule(const text::AnswerFormat& format, PromptThought thought, LarkRules* lark) {
  if (thought == PromptThought::kNone) return "";
  if (format.thoughts == text::ThoughtFormat::kHarmony) {
    return fmt::format(R"(({} "analysis" {} {} {} "assistant")? )",
                       lark->mark(HarmonyMarks::kChannel), lark->mark(HarmonyMarks::kMessage),
                       lark->up_to(HarmonyMarks::kEnd), lark->mark(HarmonyMarks::kStart));
  }
  const text::ThoughtMarks marks = text::thought_marks(format.thoughts);
  if (marks.open.empty()) return "";
  std::string rest = lark->up_to(marks.close) + R"( (/[ \n]{1,4}/)? )";
  if (thought == PromptThought::kOpen) return rest;
  return fmt::format("({} {})? ", lark->first_mark(marks.open), rest);
}

text::GrammarSource behind_thought(text::GrammarSource answer, const text::AnswerFormat& format,
                                   PromptThought thought, const text::Tokenizer& tokenizer) {
  constexpr std::string_view kAnswer = "answer";
  LarkRules lark(tokenizer);
  std::string before = thought_rule(format, thought, &lark);
  if (format.calls == text::CallFormat::kHarmony) {
    before += fmt::format(R"({} "final" {} )", lark.mark(HarmonyMarks::kChannel),
                          lark.mark(HarmonyMarks::kMessage));
  }
  if (before.empty()) return answer;
  return {.kind = text::GrammarSource::Kind::kLark,
          .text = fmt::format("start: {}@{}\n{}", before, kAnswer, lark.rules()),
          .parts = {
              {.name = std::string(kAnswer), .kind = answer.kind, .text = std::move(answer.text)}}};
}

}  // namespace shoal::server

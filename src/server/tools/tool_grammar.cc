#include "server/tools/tool_grammar.h"

#include <fmt/format.h>

#include "server/api/fields.h"
#include "server/generate/thought_grammar.h"

namespace shoal::server {
namespace {

using text::CallFormat;
using text::DeepSeekMarks;
using text::HarmonyMarks;
using text::HermesMarks;
using text::MistralMarks;

// How a format writes one call of a function, and several.
class CallRules {
 public:
  CallRules(const ToolOptions& tools, CallFormat format, LarkRules& lark)
      : tools_(tools), format_(format), lark_(lark) {}

  // Not the function's own name: "@123" is no name to the grammar.
  static std::string schema_name(size_t tool) { return fmt::format("tool_{}", tool); }

  // The rule `call`: any of the functions that may be called, without what is around a call.
  void add_call() {
    std::string calls;
    for (size_t i = 0; i < tools_.tools.size(); ++i) {
      const Tool& tool = tools_.tools[i];
      if (tools_.choice == ToolChoice::kNamed && tool.name != tools_.named) continue;
      const std::string rule = fmt::format("call_{}", i);
      lark_.rule(rule, call(tool.name, schema_name(i)));
      calls += (calls.empty() ? "" : " | ") + rule;
    }
    lark_.rule("call", calls);
  }

  // All calls of an answer. Behind the trigger: without it.
  std::string calls(bool is_behind_trigger) {
    switch (format_) {
      case CallFormat::kHermes:
        lark_.rule("closed_call", R"("\n" call "\n" )" + lark_.mark(HermesMarks::kCallEnd));
        if (is_behind_trigger) return "closed_call";
        return list(lark_.mark(HermesMarks::kCall) + " closed_call",
                    R"("\n" )" + lark_.mark(HermesMarks::kCall) + " closed_call");
      case CallFormat::kLlama3:
        return list("call", R"("; " call)");
      case CallFormat::kMistralList:
        return open(is_behind_trigger, MistralMarks::kCalls) + R"( " "? "[" )" +
               list("call", R"(", " call)") + R"( "]")";
      case CallFormat::kMistralNamed:
        if (is_behind_trigger) return "call";
        return list(lark_.mark(MistralMarks::kCalls) + " call",
                    lark_.mark(MistralMarks::kCalls) + " call");
      case CallFormat::kDeepSeekFence:
      case CallFormat::kDeepSeek:
        lark_.rule("closed_call", fmt::format("{} call {}", lark_.mark(DeepSeekMarks::kCall),
                                              lark_.mark(DeepSeekMarks::kCallEnd)));
        return open(is_behind_trigger, DeepSeekMarks::kCalls) + " " +
               list("closed_call", R"("\n"? closed_call)") + " " +
               lark_.mark(DeepSeekMarks::kCallsEnd);
      case CallFormat::kHarmony:
        // The token behind its arguments ends the answer, so there is one.
        return is_behind_trigger
                   ? "call"
                   : fmt::format(R"({} "commentary{}" call)", lark_.mark(HarmonyMarks::kChannel),
                                 HarmonyMarks::kTo);
    }
    return "call";
  }

 private:
  std::string list(const std::string& first, const std::string& next) const {
    if (tools_.is_single_call()) return first;
    return fmt::format("{} ({}){{0,{}}}", first, next, kForcedCallsMax - 1);
  }

  std::string open(bool is_behind_trigger, std::string_view mark) const {
    return is_behind_trigger ? "" : lark_.mark(mark);
  }

  std::string call(const std::string& name, const std::string& schema) const {
    const std::string arguments = "@" + schema;
    std::string quoted = json_text(name);
    switch (format_) {
      case CallFormat::kHermes:
      case CallFormat::kMistralList:
        return object(quoted, "arguments", arguments);
      case CallFormat::kLlama3:
        return object(quoted, "parameters", arguments);
      case CallFormat::kMistralNamed:
        return fmt::format("{} {} {}", quoted, lark_.mark(MistralMarks::kArguments), arguments);
      case CallFormat::kDeepSeekFence:
        return fmt::format(R"("function" {} {} {} "\n```")", lark_.mark(DeepSeekMarks::kSeparator),
                           json_text(name + "\n```json\n"), arguments);
      case CallFormat::kDeepSeek:
        return fmt::format("{} {} {}", quoted, lark_.mark(DeepSeekMarks::kSeparator), arguments);
      case CallFormat::kHarmony:
        return fmt::format(R"({} ({} "commentary")? (" "? {} "json" | " json")? {} {})", quoted,
                           lark_.mark(HarmonyMarks::kChannel), lark_.mark(HarmonyMarks::kConstrain),
                           lark_.mark(HarmonyMarks::kMessage), arguments);
    }
    return quoted;
  }

  static std::string object(const std::string& quoted, std::string_view key,
                            const std::string& arguments) {
    return fmt::format(R"({} {} "}}")",
                       json_text(fmt::format(R"({{"name": {}, "{}": )", quoted, key)), arguments);
  }

  const ToolOptions& tools_;
  const CallFormat format_;
  LarkRules& lark_;
};

// A text that begins a call and nothing else; empty where there is none.
std::string_view trigger_of(CallFormat format) {
  switch (format) {
    case CallFormat::kHermes:
      return HermesMarks::kCall;
    case CallFormat::kMistralList:
    case CallFormat::kMistralNamed:
      return MistralMarks::kCalls;
    case CallFormat::kDeepSeekFence:
    case CallFormat::kDeepSeek:
      return DeepSeekMarks::kCalls;
    case CallFormat::kHarmony:
      return HarmonyMarks::kTo;
    case CallFormat::kLlama3:
      break;
  }
  return "";
}

// Where the trigger does not count: in thoughts and, of Harmony, in all that is no message's head.
text::QuietText quiet_text(const text::AnswerFormat& format, text::PromptThought thought) {
  if (format.calls == CallFormat::kHarmony) {
    text::QuietText quiet{.open = std::string(HarmonyMarks::kMessage), .is_anywhere = true};
    for (const std::string_view mark :
         {HarmonyMarks::kEnd, HarmonyMarks::kCall, HarmonyMarks::kReturn, HarmonyMarks::kStart,
          HarmonyMarks::kChannel}) {
      quiet.closes.emplace_back(mark);
    }
    return quiet;
  }
  const text::ThoughtMarks marks = text::thought_marks(format.thoughts);
  if (marks.open.empty()) return {};
  return {.open = std::string(marks.open),
          .closes = {std::string(marks.close)},
          .starts_inside = thought == text::PromptThought::kOpen};
}

}  // namespace

std::optional<text::GrammarSource> tool_grammar(const ToolOptions& tools,
                                                const text::AnswerFormat& format,
                                                const text::Tokenizer& tokenizer,
                                                text::PromptThought thought) {
  const std::string_view trigger = tools.are_forced() ? "" : trigger_of(format.calls);
  if (!tools.are_forced() && trigger.empty()) return std::nullopt;
  text::GrammarSource source{.kind = text::GrammarSource::Kind::kLark, .text = {}};
  LarkRules lark(tokenizer);
  CallRules rules(tools, format.calls, lark);
  rules.add_call();
  const std::string before =
      tools.are_forced() ? thought_rule(format, thought, &lark) : std::string();
  const std::string calls = rules.calls(!tools.are_forced());
  source.text = fmt::format("start: {}{}\n{}", before, calls, lark.rules());
  for (size_t i = 0; i < tools.tools.size(); ++i) {
    source.parts.push_back({.name = CallRules::schema_name(i), .text = tools.tools[i].parameters});
  }
  if (trigger.empty()) return source;
  source.trigger = trigger;
  source.quiet = quiet_text(format, thought);
  // One call after the other, each with a trigger of its own.
  const bool is_one_by_one =
      format.calls == CallFormat::kHermes || format.calls == CallFormat::kMistralNamed;
  source.repeats = is_one_by_one && !tools.is_single_call();
  return source;
}

}  // namespace shoal::server

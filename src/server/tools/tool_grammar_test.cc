#include "server/tools/tool_grammar.h"

#include <gmock/gmock.h>

#include "server/testing/word_tokenizer.h"

namespace shoal::server {
namespace {

using text::CallFormat;
using text::ThoughtFormat;

constexpr std::string_view kSchema =
    R"({"type": "object", "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"],
        "additionalProperties": false})";

ToolOptions tools(ToolChoice choice) {
  return {.tools = {{.name = "weather", .definition = {}, .parameters = std::string(kSchema)},
                    {.name = "now", .definition = {}, .parameters = R"({"type": "object",
                        "properties": {}, "additionalProperties": false})"}},
          .choice = choice,
          .named = "weather"};
}

// A model whose marks are control tokens, as in most of those that have such marks.
class ToolGrammarTest : public ::testing::Test {
 protected:
  static std::vector<std::string> marks_of(const text::AnswerFormat& format) {
    std::vector<std::string> marks;
    // Those of Hermes and of thoughts are tokens of text in most models.
    if (format.calls == CallFormat::kHermes) return marks;
    for (const std::string_view mark : text::format_marks({.calls = format.calls}, true)) {
      marks.emplace_back(mark);
    }
    return marks;
  }

  // The marks as control tokens, the rest as bytes.
  static std::vector<int32_t> tokens(const text::Tokenizer& tokenizer,
                                     const text::AnswerFormat& format, std::string_view text) {
    const std::vector<std::string> marks = marks_of(format);
    std::vector<int32_t> ids;
    while (!text.empty()) {
      size_t bytes = 1;
      for (const std::string& mark : marks) {
        if (text.starts_with(mark)) bytes = mark.size();
      }
      const auto id = bytes == 1 ? byte_token(static_cast<unsigned char>(text[0]))
                                 : *tokenizer.find_token(text.substr(0, bytes));
      ids.push_back(id);
      text.remove_prefix(bytes);
    }
    return ids;
  }

  // Whether an answer may be this text and end there.
  static bool allows(const ToolOptions& options, const text::AnswerFormat& format,
                     std::string_view text, bool starts_in_thought = false) {
    const auto tokenizer = make_word_tokenizer({}, marks_of(format));
    const auto compiler = text::GrammarCompiler::create(*tokenizer);
    CHECK_MSG(compiler.is_ok(), compiler.status().message().c_str());
    const auto source = tool_grammar(options, format, *tokenizer, starts_in_thought);
    CHECK(source.has_value());
    const auto grammar = (*compiler)->compile(*source);
    CHECK_MSG(grammar.is_ok(), (grammar.status().message() + "\n" + source->text).c_str());
    const auto constraint = (*grammar)->start();
    const auto is_allowed = [&](int32_t id) {
      const auto words = constraint->allowed();
      if (!words.is_ok()) return false;
      if (words->empty()) return true;
      const auto index = static_cast<size_t>(id);
      return (((*words)[index / 32] >> (index % 32)) & 1U) != 0;
    };
    for (const int32_t id : tokens(*tokenizer, format, text)) {
      if (constraint->is_complete() || !is_allowed(id)) return false;
      if (!constraint->accept(id).is_ok()) return false;
    }
    return constraint->is_complete() || is_allowed(kEndToken);
  }
};

struct Written {
  text::AnswerFormat format;
  std::string weather;  // an answer that is this call
  std::string both;     // two calls; empty: the format has one
};

std::vector<Written> written() {
  const std::string weather = R"({"city": "Oslo"})";
  const auto json = [&weather](const std::string& key) {
    return R"({"name": "weather", ")" + key + "\": " + weather + "}";
  };
  const auto now = [](const std::string& key) { return R"({"name": "now", ")" + key + "\": {}}"; };
  const auto hermes = [](const std::string& call) {
    return "<tool_call>\n" + call + "\n</tool_call>";
  };
  const std::string begin = "<｜tool▁calls▁begin｜>";
  const std::string end = "<｜tool▁calls▁end｜>";
  const auto fenced = [](const std::string& name, const std::string& arguments) {
    return "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + name + "\n```json\n" + arguments +
           "\n```<｜tool▁call▁end｜>";
  };
  const auto plain = [](const std::string& name, const std::string& arguments) {
    return "<｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>" + arguments + "<｜tool▁call▁end｜>";
  };
  return {
      {{.calls = CallFormat::kHermes},
       hermes(json("arguments")),
       hermes(json("arguments")) + "\n" + hermes(now("arguments"))},
      {{.calls = CallFormat::kLlama3},
       json("parameters"),
       json("parameters") + "; " + now("parameters")},
      {{.calls = CallFormat::kMistralList},
       "[TOOL_CALLS] [" + json("arguments") + "]",
       "[TOOL_CALLS][" + json("arguments") + ", " + now("arguments") + "]"},
      {{.calls = CallFormat::kMistralNamed},
       "[TOOL_CALLS]weather[ARGS]" + weather,
       "[TOOL_CALLS]weather[ARGS]" + weather + "[TOOL_CALLS]now[ARGS]{}"},
      {{.calls = CallFormat::kDeepSeekFence},
       begin + fenced("weather", weather) + end,
       begin + fenced("weather", weather) + "\n" + fenced("now", "{}") + end},
      {{.calls = CallFormat::kDeepSeek},
       begin + plain("weather", weather) + end,
       begin + plain("weather", weather) + plain("now", "{}") + end},
      {{.calls = CallFormat::kHarmony, .thoughts = ThoughtFormat::kHarmony},
       "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>" + weather,
       ""},
  };
}

// What the parser of the format makes of an answer, calls only.
std::vector<std::string> calls_of(const text::AnswerFormat& format, const std::string& answer) {
  const auto parser = text::make_answer_parser(
      format, {.functions = {"weather", "now"}, .are_calls_certain = true});
  text::AnswerEvents events;
  parser->push(answer, &events);
  parser->finish(&events);
  std::vector<std::string> calls;
  for (const text::AnswerEvent& event : events) {
    using Kind = text::AnswerEvent::Kind;
    EXPECT_NE(event.kind, Kind::kContent) << event.text;
    if (event.kind == Kind::kCallBegin) calls.push_back(event.text + " ");
    if (event.kind == Kind::kCallArguments) calls.back() += event.text;
  }
  return calls;
}

TEST_F(ToolGrammarTest, ForcedCallsAreWrittenAsTheFormatHasThemAndAreRead) {
  for (const Written& answer : written()) {
    SCOPED_TRACE(text::name(answer.format.calls));
    EXPECT_TRUE(allows(tools(ToolChoice::kRequired), answer.format, answer.weather));
    EXPECT_THAT(calls_of(answer.format, answer.weather),
                ::testing::ElementsAre(R"(weather {"city": "Oslo"})"));
    EXPECT_FALSE(allows(tools(ToolChoice::kRequired), answer.format, "Oslo is cold."));
    EXPECT_FALSE(allows(tools(ToolChoice::kRequired), answer.format, ""));
    if (answer.both.empty()) continue;
    EXPECT_TRUE(allows(tools(ToolChoice::kRequired), answer.format, answer.both));
    EXPECT_THAT(calls_of(answer.format, answer.both),
                ::testing::ElementsAre(R"(weather {"city": "Oslo"})", "now {}"));
    ToolOptions single = tools(ToolChoice::kRequired);
    single.is_parallel = false;
    EXPECT_TRUE(allows(single, answer.format, answer.weather));
    EXPECT_FALSE(allows(single, answer.format, answer.both));
  }
}

TEST_F(ToolGrammarTest, ANamedFunctionIsTheOnlyOne) {
  ToolOptions now = tools(ToolChoice::kNamed);
  now.named = "now";
  for (const Written& answer : written()) {
    SCOPED_TRACE(text::name(answer.format.calls));
    EXPECT_TRUE(allows(tools(ToolChoice::kNamed), answer.format, answer.weather));
    EXPECT_FALSE(allows(now, answer.format, answer.weather));
    if (!answer.both.empty()) {
      EXPECT_FALSE(allows(tools(ToolChoice::kNamed), answer.format, answer.both));
    }
  }
}

TEST_F(ToolGrammarTest, ACallOfTheModelsOwnFollowsTheGrammarOnceItHasBegun) {
  for (const Written& answer : written()) {
    SCOPED_TRACE(text::name(answer.format.calls));
    const ToolOptions options = tools(ToolChoice::kAuto);
    if (answer.format.calls == CallFormat::kLlama3) {
      EXPECT_FALSE(tool_grammar(options, answer.format, *make_word_tokenizer({}), false));
      continue;
    }
    const bool has_head = answer.format.calls == CallFormat::kHarmony;
    const std::string words = has_head ? "" : "Let me look. ";
    EXPECT_TRUE(allows(options, answer.format, words + answer.weather));
    EXPECT_TRUE(allows(options, answer.format, words + answer.both));
    EXPECT_TRUE(allows(options, answer.format, "Oslo is cold."));
    // Any other city breaks it.
    std::string other = answer.weather;
    other.replace(other.find("Oslo"), 4, "Rome");
    EXPECT_FALSE(allows(options, answer.format, words + other));
  }
}

TEST_F(ToolGrammarTest, AThoughtMayComeBeforeForcedCalls) {
  for (Written answer : written()) {
    if (answer.format.calls == CallFormat::kHarmony) continue;
    SCOPED_TRACE(text::name(answer.format.calls));
    answer.format.thoughts = ThoughtFormat::kThink;
    const ToolOptions options = tools(ToolChoice::kRequired);
    EXPECT_TRUE(allows(options, answer.format, "<think>\nHm.\n</think>\n\n" + answer.weather));
    EXPECT_TRUE(allows(options, answer.format, answer.weather));
    EXPECT_FALSE(allows(options, answer.format, "<think>\nHm.\n</think>\n\nNo."));
    EXPECT_TRUE(allows(options, answer.format, "Hm.\n</think>\n" + answer.weather, true));
    EXPECT_FALSE(allows(options, answer.format, answer.weather, true));
  }
  const text::AnswerFormat harmony = written().back().format;
  EXPECT_TRUE(allows(
      tools(ToolChoice::kRequired), harmony,
      "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant" + written().back().weather));
}

}  // namespace
}  // namespace shoal::server

#include "server/tools/tool_grammar.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "server/testing/answer_walk.h"
#include "server/testing/word_tokenizer.h"

namespace shoal::server {
namespace {

using text::CallFormat;
using text::PromptThought;
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

  static std::shared_ptr<const text::Grammar> compile(const ToolOptions& options,
                                                      const text::AnswerFormat& format,
                                                      const text::Tokenizer& tokenizer,
                                                      PromptThought thought) {
    const auto compiler = text::GrammarCompiler::create(tokenizer);
    CHECK_MSG(compiler.is_ok(), compiler.status().message().c_str());
    const auto source = tool_grammar(options, format, tokenizer, thought);
    CHECK(source.has_value());
    auto grammar = (*compiler)->compile(*source);
    CHECK_MSG(grammar.is_ok(), (grammar.status().message() + "\n" + source->text).c_str());
    return std::move(grammar).value();
  }

  // Whether an answer may be this text, with the marks as control tokens, and end there.
  static bool allows(const ToolOptions& options, const text::AnswerFormat& format,
                     std::string_view text, PromptThought thought = PromptThought::kOptional) {
    const std::vector<std::string> marks = marks_of(format);
    const auto tokenizer = make_word_tokenizer({}, marks);
    return takes(*compile(options, format, *tokenizer, thought),
                 marked_tokens(*tokenizer, marks, text));
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
  const auto parser =
      text::make_answer_parser(format, {.functions = {"weather", "now"}, .are_calls_bound = true});
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

// That random answers say as they come what they say as a whole; the number of their calls.
size_t compare_answers(const AnswerWalk::Options& options) {
  const AnswerWalk walk(options);
  size_t calls = 0;
  for (uint32_t seed = 0; seed < 30; ++seed) {
    std::mt19937 random(seed);
    const auto pieces = walk.answer([&random](size_t) {
      const size_t number = random();
      return number % 40 == 0 ? std::nullopt : std::optional(number / 40);
    });
    if (!pieces) continue;
    std::string whole;
    for (const std::string& piece : *pieces) whole += piece;
    const text::AnswerEvents events = walk.read(*pieces, true);
    EXPECT_EQ(events, walk.read({whole}, false)) << text::name(options.format.calls) << whole;
    calls += static_cast<size_t>(
        std::ranges::count(events, text::AnswerEvent::Kind::kCallEnd, &text::AnswerEvent::kind));
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
      EXPECT_FALSE(
          tool_grammar(options, answer.format, *make_word_tokenizer({}), PromptThought::kNone));
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
    EXPECT_TRUE(
        allows(options, answer.format, "Hm.\n</think>\n" + answer.weather, PromptThought::kOpen));
    EXPECT_FALSE(allows(options, answer.format, answer.weather, PromptThought::kOpen));
  }
  const text::AnswerFormat harmony = written().back().format;
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  const ToolOptions options = tools(ToolChoice::kRequired);
  EXPECT_TRUE(allows(options, harmony, thought + written().back().weather));
  EXPECT_FALSE(allows(options, harmony, thought + written().back().weather, PromptThought::kNone));
}

// An answer of the text before a call, with a call that breaks the schema: allowed where it is
// none.
TEST_F(ToolGrammarTest, NothingBeginsACallInAThought) {
  for (Written answer : written()) {
    if (answer.format.calls == CallFormat::kLlama3) continue;
    SCOPED_TRACE(text::name(answer.format.calls));
    const ToolOptions options = tools(ToolChoice::kAuto);
    std::string broken = answer.weather;
    broken.replace(broken.find("Oslo"), 4, "Rome");
    if (answer.format.calls == CallFormat::kHarmony) {
      const std::string open = "<|channel|>analysis<|message|>";
      const std::string to = "I send it to=functions.weather, as a <|constrain|> may say.";
      const std::string close = "<|end|><|start|>assistant";
      EXPECT_TRUE(allows(options, answer.format, open + to));
      EXPECT_TRUE(allows(options, answer.format, open + to + close + answer.weather));
      EXPECT_FALSE(allows(options, answer.format, open + to + close + broken));
      EXPECT_TRUE(allows(options, answer.format, "<|channel|>final<|message|>" + to));
      EXPECT_FALSE(allows(options, answer.format,
                          "<|start|>assistant to=functions.weather<|channel|>final<|message|>"));
      continue;
    }
    answer.format.thoughts = ThoughtFormat::kThink;
    EXPECT_TRUE(allows(options, answer.format, "<think>I call " + broken));
    EXPECT_TRUE(allows(options, answer.format, "\n<think>" + broken + "</think>No."));
    EXPECT_TRUE(allows(options, answer.format, "<think>" + broken + "</think>" + answer.weather));
    EXPECT_FALSE(allows(options, answer.format, "<think>" + broken + "</think>" + broken));
    EXPECT_FALSE(allows(options, answer.format, "No.<think>" + broken));
    EXPECT_TRUE(allows(options, answer.format, broken + "</think>No.", PromptThought::kOpen));
    EXPECT_FALSE(allows(options, answer.format, "</think>" + broken, PromptThought::kOpen));
    EXPECT_FALSE(allows(options, answer.format, broken, PromptThought::kNone));
  }
}

// Whatever a model says under the grammar: what comes of it as it is written is what the whole
// says.
TEST_F(ToolGrammarTest, C50CallsThatAreStreamedAreThoseOfTheWholeAnswer) {
  size_t calls = 0;
  for (const Written& answer : written()) {
    for (const auto thought :
         {PromptThought::kNone, PromptThought::kOptional, PromptThought::kOpen}) {
      AnswerWalk::Options options{.format = answer.format, .thought = thought};
      const bool is_harmony = answer.format.calls == CallFormat::kHarmony;
      if (!is_harmony && thought != PromptThought::kNone) {
        options.format.thoughts = ThoughtFormat::kThink;
      }
      if (is_harmony && thought == PromptThought::kOpen) continue;
      if (answer.format.calls == CallFormat::kLlama3) options.choice = ToolChoice::kRequired;
      for (const bool has_control_marks : {false, true}) {
        options.has_control_marks = has_control_marks;
        calls += compare_answers(options);
      }
    }
  }
  EXPECT_GT(calls, 300U);
}

}  // namespace
}  // namespace shoal::server

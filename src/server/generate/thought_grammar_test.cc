#include "server/generate/thought_grammar.h"

#include <gmock/gmock.h>

#include <vector>

#include "server/testing/word_tokenizer.h"

namespace shoal::server {
namespace {

using text::CallFormat;
using text::GrammarSource;
using text::PromptThought;
using text::ThoughtFormat;
using Kind = GrammarSource::Kind;

GrammarSource json_answer() {
  return {.kind = Kind::kJsonSchema, .text = R"({"const": {"a": 1}})"};
}
constexpr const char* kAnswer = R"({"a": 1})";

text::AnswerFormat format_of(ThoughtFormat thoughts) {
  const bool is_harmony = thoughts == ThoughtFormat::kHarmony;
  return {.calls = is_harmony ? CallFormat::kHarmony : CallFormat::kHermes, .thoughts = thoughts};
}

// Models whose marks are text, and those whose marks are control tokens.
class ThoughtGrammar : public ::testing::TestWithParam<bool> {
 protected:
  static std::vector<std::string> marks_of(const text::AnswerFormat& format) {
    std::vector<std::string> marks;
    for (const std::string_view mark : text::format_marks(format, false)) marks.emplace_back(mark);
    return marks;
  }

  static bool allows(const GrammarSource& answer, ThoughtFormat thoughts, PromptThought thought,
                     std::string_view text) {
    const text::AnswerFormat format = format_of(thoughts);
    std::vector<std::string> control;
    if (GetParam()) control = marks_of(format);
    const auto tokenizer = make_word_tokenizer({"</think>▁{\"", "<thi"}, control);
    const auto compiler = text::GrammarCompiler::create(*tokenizer);
    CHECK_MSG(compiler.is_ok(), compiler.status().message().c_str());
    const auto grammar = (*compiler)->compile(behind_thought(answer, format, thought, *tokenizer));
    CHECK_MSG(grammar.is_ok(), grammar.status().message().c_str());
    return takes(**grammar, marked_tokens(*tokenizer, control, text));
  }
};

TEST_P(ThoughtGrammar, AModelThatThinksMayDoSoBeforeWhatIsDemanded) {
  for (const ThoughtFormat thoughts : {ThoughtFormat::kThink, ThoughtFormat::kBracketThink}) {
    const auto [open, close] = text::thought_marks(thoughts);
    const std::string thought = std::string(open) + "\nHm {\"a\": 2} < [\n" + std::string(close);
    const auto may = [thoughts](const std::string& text) {
      return allows(json_answer(), thoughts, PromptThought::kOptional, text);
    };
    EXPECT_TRUE(may(kAnswer));
    EXPECT_TRUE(may(thought + "\n\n" + kAnswer));
    EXPECT_TRUE(may(std::string(open) + std::string(close) + kAnswer));
    EXPECT_FALSE(may(thought));
    EXPECT_FALSE(may(std::string(open) + "Hm." + kAnswer));
    EXPECT_FALSE(may(thought + "Well: " + kAnswer));
    EXPECT_FALSE(may(thought + thought + kAnswer));
    EXPECT_FALSE(may(thought + kAnswer + " "));
    EXPECT_FALSE(may(std::string("x") + kAnswer));
  }
}

TEST_P(ThoughtGrammar, AThoughtThatThePromptOpenedIsClosed) {
  const auto may = [](const std::string& text) {
    return allows(json_answer(), ThoughtFormat::kThink, PromptThought::kOpen, text);
  };
  EXPECT_TRUE(may(std::string("Hm.\n</think>\n\n") + kAnswer));
  EXPECT_TRUE(may(std::string("</think>") + kAnswer));
  EXPECT_FALSE(may(""));
  EXPECT_FALSE(may("Hm."));
  EXPECT_FALSE(may(kAnswer));
  EXPECT_FALSE(may("Hm.</think>"));
  EXPECT_FALSE(may("Hm.</think>No."));
}

TEST_P(ThoughtGrammar, WhereNoThoughtIsToComeTheAnswerIsAsItIsDemanded) {
  for (const ThoughtFormat thoughts : {ThoughtFormat::kNone, ThoughtFormat::kThink}) {
    EXPECT_TRUE(allows(json_answer(), thoughts, PromptThought::kNone, kAnswer));
    EXPECT_FALSE(allows(json_answer(), thoughts, PromptThought::kNone,
                        std::string("<think></think>") + kAnswer));
    const auto tokenizer = make_word_tokenizer({});
    EXPECT_EQ(
        behind_thought(json_answer(), format_of(thoughts), PromptThought::kNone, *tokenizer).text,
        json_answer().text);
  }
}

TEST_P(ThoughtGrammar, HarmonysAnswerIsItsFinalMessage) {
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  const std::string answer = std::string("<|channel|>final<|message|>") + kAnswer;
  const auto may = [](PromptThought thought, const std::string& text) {
    return allows(json_answer(), ThoughtFormat::kHarmony, thought, text);
  };
  EXPECT_TRUE(may(PromptThought::kOptional, thought + answer));
  EXPECT_TRUE(may(PromptThought::kOptional, answer));
  EXPECT_FALSE(may(PromptThought::kOptional, thought));
  EXPECT_FALSE(may(PromptThought::kOptional, thought + thought + answer));
  EXPECT_FALSE(may(PromptThought::kOptional, kAnswer));
  EXPECT_FALSE(may(PromptThought::kOptional, "<|channel|>commentary<|message|>Hm."));
  EXPECT_TRUE(may(PromptThought::kNone, answer));
  EXPECT_FALSE(may(PromptThought::kNone, thought + answer));
}

TEST_P(ThoughtGrammar, WhatIsDemandedMayBeOfAnyKind) {
  const std::vector<std::pair<GrammarSource, std::string>> answers = {
      {{.kind = Kind::kRegex, .text = "^[^x]*$"}, "<b> any </think>"},
      {{.kind = Kind::kLark,
        .text = "start: first_mark any_text?\nfirst_mark: \"a\"\n"
                "any_text: \"b\"\n"},
       "ab"},
      {{.kind = Kind::kGbnf, .text = "root ::= \"<\" | \"<a\" root\n"}, "<a<a<"}};
  for (const auto& [source, text] : answers) {
    if (!GetParam() || text.find("think") == std::string::npos) {
      EXPECT_TRUE(allows(source, ThoughtFormat::kThink, PromptThought::kOptional, text)) << text;
    }
    EXPECT_TRUE(allows(source, ThoughtFormat::kThink, PromptThought::kOptional,
                       "<think>xx</think>" + text.substr(0, 7)))
        << text;
    EXPECT_FALSE(
        allows(source, ThoughtFormat::kThink, PromptThought::kOptional, "<think>xx</think>x"));
  }
  // What begins as a thought is one, though the expression takes it too.
  EXPECT_FALSE(
      allows(answers[0].first, ThoughtFormat::kThink, PromptThought::kOptional, "<think>Hm."));
}

INSTANTIATE_TEST_SUITE_P(Marks, ThoughtGrammar, ::testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "OfControlTokens" : "OfText");
});

}  // namespace
}  // namespace shoal::server

#include "server/generate/answer_format.h"

#include <gmock/gmock.h>

#include <string>

#include "server/testing/word_tokenizer.h"

namespace shoal::server {
namespace {

using Kind = text::GrammarSource::Kind;
using Read = std::optional<AnswerGrammar> (*)(Fields*, std::string_view);
using ::testing::HasSubstr;
using ::testing::StartsWith;

// What a body says, or the error.
struct Outcome {
  std::optional<AnswerGrammar> grammar;
  std::optional<ApiError> error;
};
Outcome read(const std::string& body, Read reader = read_openai_format) {
  const auto json = parse_body(body);
  CHECK_MSG(json.is_ok(), body.c_str());
  Fields fields(*json);
  Outcome outcome;
  outcome.grammar = reader(&fields, body);
  outcome.error = fields.finish();
  return outcome;
}

AnswerGrammar grammar_of(const std::string& body, Read reader = read_openai_format) {
  const Outcome outcome = read(body, reader);
  CHECK_MSG(!outcome.error.has_value(), outcome.error->message.c_str());
  CHECK_MSG(outcome.grammar.has_value(), body.c_str());
  return *outcome.grammar;
}

std::string fault(const std::string& body, Read reader = read_openai_format) {
  const Outcome outcome = read(body, reader);
  return outcome.error ? outcome.error->param.value_or("?") : "";
}

TEST(AnswerFormat, AFreeAnswerHasNone) {
  for (const char* body :
       {"{}", R"({"response_format": {"type": "text"}})", R"({"response_format": null})",
        R"({"grammar": "", "guided_json": null})", R"({"structured_outputs": {}})"}) {
    const Outcome outcome = read(body);
    EXPECT_FALSE(outcome.grammar.has_value()) << body;
    EXPECT_FALSE(outcome.error.has_value()) << body;
  }
  EXPECT_FALSE(read(R"({"format": ""})", read_ollama_format).grammar.has_value());
}

TEST(AnswerFormat, ASchemaIsTakenAsItWasWritten) {
  const std::string schema = R"({"type":"object", "properties": {"z": {}, "a": {}}})";
  const std::vector<std::pair<std::string, std::string>> bodies = {
      {R"({"response_format": {"type": "json_schema", "json_schema":
           {"name": "n", "strict": true, "description": "d", "schema": )" +
           schema + "}}}",
       "response_format"},
      {R"({"response_format": {"schema": )" + schema + R"(, "type": "json_object"}})",
       "response_format"},
      {R"({"guided_json": )" + schema + "}", "guided_json"},
      {R"({"guided_json": )" + Json(schema).dump() + "}", "guided_json"},
      {R"({"json_schema": )" + schema + "}", "json_schema"},
      {R"({"structured_outputs": {"json": )" + schema + "}}", "structured_outputs.json"}};
  for (const auto& [body, param] : bodies) {
    const AnswerGrammar grammar = grammar_of(body);
    EXPECT_EQ(grammar.source.kind, Kind::kJsonSchema) << body;
    EXPECT_EQ(grammar.source.text, schema) << body;
    EXPECT_EQ(grammar.param, param);
  }
  const AnswerGrammar ollama = grammar_of(R"({"format": )" + schema + "}", read_ollama_format);
  EXPECT_EQ(ollama.source.text, schema);
  for (const std::string& body :
       {R"({"output_format": {"type": "json_schema", "schema": )" + schema + "}}",
        R"({"output_config": {"format": {"type": "json_schema", "schema": )" + schema + "}}}"}) {
    EXPECT_EQ(grammar_of(body, read_anthropic_format).source.text, schema);
  }
}

TEST(AnswerFormat, AnyObjectMayBeAskedFor) {
  const std::string any = text::json_object_grammar().text;
  EXPECT_EQ(grammar_of(R"({"response_format": {"type": "json_object"}})").source.text, any);
  EXPECT_EQ(grammar_of(R"({"structured_outputs": {"json_object": true}})").source.text, any);
  EXPECT_EQ(grammar_of(R"({"format": "json"})", read_ollama_format).source.text, any);
}

TEST(AnswerFormat, ExpressionsChoicesAndGrammarsHaveTheirKinds) {
  EXPECT_EQ(grammar_of(R"({"guided_regex": "a+"})").source.kind, Kind::kRegex);
  EXPECT_EQ(grammar_of(R"({"structured_outputs": {"regex": "a+"}})").source.text, "a+");
  EXPECT_EQ(grammar_of(R"({"guided_grammar": "start: \"a\""})").source.kind, Kind::kLark);
  EXPECT_EQ(grammar_of(R"({"grammar": "root ::= \"a\""})").source.kind, Kind::kGbnf);
  EXPECT_EQ(grammar_of(R"({"structured_outputs": {"grammar": "root ::= \"a\""}})").param,
            "structured_outputs.grammar");
  const AnswerGrammar choice = grammar_of(R"({"guided_choice": ["a.b", "c"]})");
  EXPECT_EQ(choice.source.kind, Kind::kRegex);
  EXPECT_EQ(choice.source.text, R"((?:a\.b)|(?:c))");
}

TEST(AnswerFormat, WhatIsWrongIsRefusedByName) {
  EXPECT_EQ(fault(R"({"response_format": "json"})"), "response_format");
  EXPECT_EQ(fault(R"({"response_format": {"type": "xml"}})"), "response_format.type");
  EXPECT_EQ(fault(R"({"response_format": {}})"), "response_format.type");
  EXPECT_EQ(fault(R"({"response_format": {"type": "json_schema"}})"),
            "response_format.json_schema");
  EXPECT_EQ(fault(R"({"response_format": {"type": "json_schema", "json_schema": {"name": "n"}}})"),
            "response_format.json_schema.schema");
  EXPECT_EQ(fault(R"({"response_format": {"type": "json_object", "x": 1}})"), "response_format.x");
  EXPECT_EQ(fault(R"({"guided_json": 5})"), "guided_json");
  EXPECT_EQ(fault(R"({"guided_choice": []})"), "guided_choice");
  EXPECT_EQ(fault(R"({"guided_choice": ["a", 1]})"), "guided_choice");
  EXPECT_EQ(fault(R"({"guided_regex": ["a"]})"), "guided_regex");
  EXPECT_EQ(fault(R"({"guided_whitespace_pattern": " "})"), "guided_whitespace_pattern");
  EXPECT_EQ(fault(R"({"structured_outputs": {"structural_tag": "x"}})"),
            "structured_outputs.structural_tag");
  EXPECT_EQ(fault(R"({"structured_outputs": {"bogus": 1}})"), "structured_outputs.bogus");
  EXPECT_EQ(fault(R"({"format": "xml"})", read_ollama_format), "format");
  EXPECT_EQ(fault(R"({"output_format": {"type": "text"}})", read_anthropic_format),
            "output_format.type");
  EXPECT_EQ(fault(R"({"output_config": {"bogus": 1}})", read_anthropic_format),
            "output_config.bogus");
}

TEST(AnswerFormat, OneDemandIsEnough) {
  const Outcome outcome =
      read(R"({"response_format": {"type": "json_object"}, "guided_regex": "a"})");
  ASSERT_TRUE(outcome.error.has_value());
  EXPECT_EQ(outcome.error->param, "guided_regex");
  EXPECT_THAT(outcome.error->message, HasSubstr("response_format"));
}

class Constrained : public ::testing::Test {
 protected:
  std::optional<ApiError> constrain_by(const std::string& body, size_t choices = 2) {
    choices_.assign(choices, Choice{});
    return constrain(*compiler_, grammar_of(body), &choices_);
  }

  std::unique_ptr<text::Tokenizer> tokenizer_ = make_word_tokenizer({"▁one", "one", "two"});
  std::unique_ptr<text::GrammarCompiler> compiler_ =
      std::move(text::GrammarCompiler::create(*tokenizer_)).value();
  std::vector<Choice> choices_;
};

TEST_F(Constrained, EveryChoiceFollowsTheGrammarOnItsOwn) {
  ASSERT_FALSE(constrain_by(R"({"guided_choice": ["one", "two two"]})").has_value());
  const auto first = choices_[0].request.grammar->start();
  const auto second = choices_[1].request.grammar->start();
  EXPECT_TRUE(first->allowed()->allows(word_token(1)));
  EXPECT_FALSE(first->allowed()->allows(word_token(0)));
  EXPECT_FALSE(first->allowed()->allows(kEndToken));
  EXPECT_TRUE(first->accept(word_token(1)).value());
  EXPECT_FALSE(second->accept(word_token(2)).value());
  EXPECT_FALSE(second->accept(word_token(0)).is_ok());
}

TEST_F(Constrained, ABadGrammarIsRefusedWithItsField) {
  const auto error = constrain_by(
      R"({"response_format": {"type": "json_schema", "json_schema": {"schema":
          {"type": "array", "uniqueItems": true}}}})");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->param, "response_format");
  EXPECT_THAT(error->message, StartsWith("response_format: #/uniqueItems: \"uniqueItems\""));
  EXPECT_EQ(choices_[0].request.grammar, nullptr);
}

}  // namespace
}  // namespace shoal::server

#include "text/grammar/grammar.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <vector>

#include "text/utf8.h"

namespace shoal::text {
namespace {

using Json = nlohmann::json;
using Kind = GrammarSource::Kind;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr int32_t kEnd = 2;
constexpr int32_t kOtherEnd = 3;
constexpr int32_t kControl = 4;
constexpr int32_t kFirstByte = 5;

// <unk>, <s>, two ends of an answer, a control token, the bytes, then words.
std::unique_ptr<Tokenizer> make_tokenizer() {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  const auto add = [&](std::string text, TokenKind kind) {
    vocabulary.tokens.push_back(std::move(text));
    vocabulary.types.push_back(static_cast<int32_t>(kind));
  };
  add("<unk>", TokenKind::kUnknown);
  for (const char* text : {"<s>", "</s>", "<|im_end|>", "<|tool|>"}) add(text, TokenKind::kControl);
  for (int byte = 0; byte < 256; ++byte) add(fmt::format("<0x{:02X}>", byte), TokenKind::kByte);
  for (const char* text : {"{\"", "\":▁", "ab", "abc", ",▁\"", "true", "12", "}▁", "é"}) {
    add(text, TokenKind::kNormal);
  }
  add("<tool>", TokenKind::kUserDefined);
  vocabulary.scores.assign(vocabulary.tokens.size(), 0.0F);
  vocabulary.bos = 1;
  vocabulary.eos = kEnd;
  vocabulary.add_space_prefix = false;
  auto tokenizer = Tokenizer::from_vocabulary(vocabulary);
  CHECK_MSG(tokenizer.is_ok(), tokenizer.status().message().c_str());
  return std::move(tokenizer).value();
}

bool has(std::span<const uint32_t> mask, int32_t id) {
  const auto index = static_cast<size_t>(id);
  return mask.empty() || ((mask[index / 32] >> (index % 32)) & 1U) != 0;
}

// JSON whose numbers are of any size, while the parser wants doubles.
Json parse_json(const std::string& text) {
  static const std::regex kExponent("([0-9])[eE][+-]?[0-9]+");
  return Json::parse(std::regex_replace(text, kExponent, "$1"), nullptr, false);
}

class GrammarTest : public ::testing::Test {
 protected:
  std::shared_ptr<const Grammar> compile(const GrammarSource& source) const {
    auto grammar = compiler_->compile(source);
    CHECK_MSG(grammar.is_ok(), grammar.status().message().c_str());
    return std::move(grammar).value();
  }
  std::unique_ptr<Constraint> start(Kind kind, const std::string& text) const {
    return compile({.kind = kind, .text = text})->start();
  }
  std::string refusal(Kind kind, const std::string& text) const {
    const auto grammar = compiler_->compile({.kind = kind, .text = text});
    EXPECT_FALSE(grammar.is_ok()) << text.substr(0, 200);
    return grammar.is_ok() ? "" : grammar.status().message();
  }

  int32_t word(std::string_view text) const { return tokenizer_->find_token(text).value(); }
  static int32_t byte(char c) { return kFirstByte + static_cast<unsigned char>(c); }

  std::vector<int32_t> allowed(Constraint& constraint) const {
    const auto mask = constraint.allowed();
    CHECK_MSG(mask.is_ok(), mask.status().message().c_str());
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < tokenizer_->vocabulary_size(); ++id) {
      if (has(*mask, id)) ids.push_back(id);
    }
    return ids;
  }
  // Whether the answer may be this text, one byte token after another, and end there.
  bool takes(const Grammar& grammar, std::string_view text) const {
    const auto constraint = grammar.start();
    for (const char c : text) {
      if (constraint->is_complete() || !constraint->accept(byte(c)).is_ok()) return false;
    }
    return constraint->is_complete() || has(*constraint->allowed(), kEnd);
  }
  // A random answer, which ends where it may, sooner or later; none where it had no end.
  std::optional<std::string> random_answer(const Grammar& grammar, uint32_t seed,
                                           size_t tokens_max) const {
    std::mt19937 random(seed);
    const auto constraint = grammar.start();
    std::string text;
    for (size_t i = 0; i < tokens_max && !constraint->is_complete(); ++i) {
      const std::vector<int32_t> ids = allowed(*constraint);
      CHECK(!ids.empty());
      const bool may_end = std::find(ids.begin(), ids.end(), kEnd) != ids.end();
      if (may_end && random() % 3 == 0) return text;
      int32_t id = kEnd;
      while (id == kEnd || id == kOtherEnd) {
        if (may_end && ids.size() <= 2) return text;
        id = ids[random() % ids.size()];
      }
      const Status accepted = constraint->accept(id);
      CHECK_MSG(accepted.is_ok(), accepted.message().c_str());
      text += tokenizer_->token_bytes(id);
    }
    if (!constraint->is_complete()) return std::nullopt;
    return text;
  }

  std::unique_ptr<Tokenizer> tokenizer_ = make_tokenizer();
  std::unique_ptr<GrammarCompiler> compiler_ =
      std::move(GrammarCompiler::create(*tokenizer_)).value();
};

TEST_F(GrammarTest, AMaskHasTheTokensThatMayComeNext) {
  const auto constraint = start(Kind::kRegex, "abcd|x[0-9]");
  EXPECT_THAT(allowed(*constraint),
              ::testing::UnorderedElementsAre(byte('a'), byte('x'), word("ab"), word("abc")));
  ASSERT_TRUE(constraint->accept(byte('x')).is_ok());
  EXPECT_EQ(allowed(*constraint).size(), 10U);
  ASSERT_TRUE(constraint->accept(byte('7')).is_ok());
  EXPECT_TRUE(constraint->is_complete());
  EXPECT_FALSE(constraint->accept(byte('7')).is_ok());
}

TEST_F(GrammarTest, ATokenThatIsNotAllowedEndsTheConstraint) {
  const auto constraint = start(Kind::kRegex, "abc");
  EXPECT_FALSE(constraint->accept(byte('x')).is_ok());
  EXPECT_FALSE(constraint->allowed().is_ok());
  EXPECT_FALSE(constraint->accept(byte('a')).is_ok());
  const auto other = start(Kind::kRegex, "abc");
  EXPECT_THAT(other->accept(100'000).message(), HasSubstr("vocabulary"));
}

TEST_F(GrammarTest, EveryTokenThatEndsAnAnswerIsAllowedWhereItMayEnd) {
  const auto constraint = start(Kind::kRegex, "(ab)+");
  EXPECT_FALSE(has(*constraint->allowed(), kEnd));
  ASSERT_TRUE(constraint->accept(word("ab")).is_ok());
  EXPECT_FALSE(constraint->is_complete());
  EXPECT_TRUE(has(*constraint->allowed(), kEnd));
  EXPECT_TRUE(has(*constraint->allowed(), kOtherEnd));
  ASSERT_TRUE(constraint->accept(byte('a')).is_ok());
  EXPECT_FALSE(has(*constraint->allowed(), kEnd));
}

TEST_F(GrammarTest, AnswersOfOneGrammarAreIndependent) {
  const auto grammar = compile({.kind = Kind::kRegex, .text = "a+b"});
  const auto one = grammar->start();
  ASSERT_TRUE(one->accept(byte('a')).is_ok());
  const auto two = grammar->start();
  EXPECT_TRUE(has(*one->allowed(), byte('b')));
  EXPECT_FALSE(has(*two->allowed(), byte('b')));
  EXPECT_EQ(random_answer(*grammar, 5, 50), random_answer(*grammar, 5, 50));
}

TEST_F(GrammarTest, WhatItWasMadeOfMayEndBefore) {
  auto grammar = compile({.kind = Kind::kRegex, .text = "ab"});
  compiler_ = nullptr;
  const auto constraint = grammar->start();
  grammar = nullptr;
  const int32_t ab = word("ab");
  tokenizer_ = nullptr;
  ASSERT_TRUE(constraint->allowed().is_ok());
  ASSERT_TRUE(constraint->accept(ab).is_ok());
  EXPECT_TRUE(constraint->is_complete());
}

TEST_F(GrammarTest, CharactersOfSeveralTokensStayWhole) {
  const auto grammar = compile({.kind = Kind::kRegex, .text = "[é漢👍]{1,4}"});
  const auto constraint = grammar->start();
  ASSERT_TRUE(constraint->accept(byte('\xF0')).is_ok());
  EXPECT_THAT(allowed(*constraint), ::testing::ElementsAre(byte('\x9F')));
  for (uint32_t seed = 0; seed < 50; ++seed) {
    std::string text = random_answer(*grammar, seed, 100).value();
    const std::string as_it_was = text;
    std::string whole;
    take_characters(text, whole);
    EXPECT_EQ(whole, as_it_was) << seed;
  }
}

TEST_F(GrammarTest, JsonHasTheSchemasOrderAndNoWhiteSpaceButOneWay) {
  const auto grammar = compile({.kind = Kind::kJsonSchema, .text = R"({"type": "object",
      "properties": {"z": {"type": "boolean"}, "a": {"type": "array", "maxItems": 3,
        "items": {"enum": [1, "x", null]}}},
      "required": ["z", "a"], "additionalProperties": false})"});
  EXPECT_TRUE(takes(*grammar, R"({"z": true, "a": []})"));
  EXPECT_TRUE(takes(*grammar, R"({"z": false, "a": [1, "x", null]})"));
  EXPECT_FALSE(takes(*grammar, R"({"a": [], "z": true})"));
  EXPECT_FALSE(takes(*grammar, R"({"z":true, "a": []})"));
  EXPECT_FALSE(takes(*grammar, R"({ "z": true, "a": []})"));
  EXPECT_FALSE(takes(*grammar, R"({"z": true, "a": [1, 1, 1, 1]})"));
  EXPECT_FALSE(takes(*grammar, R"({"z": true})"));
}

TEST_F(GrammarTest, C52RandomAnswersAreValidJson) {
  const auto any = compile(json_object_grammar());
  size_t whole = 0;
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const auto text = random_answer(*any, seed, 400);
    if (!text) continue;
    EXPECT_TRUE(parse_json(*text).is_object()) << *text;
    ++whole;
  }
  EXPECT_GT(whole, 10U);
  const auto schema = compile({.kind = Kind::kJsonSchema, .text = R"({"type": "object",
      "properties": {"a": {"type": "string", "maxLength": 8},
        "b": {"type": "array", "maxItems": 4, "items": {"type": "integer", "maximum": 999,
          "minimum": -99}}}, "required": ["a", "b"], "additionalProperties": false})"});
  for (uint32_t seed = 0; seed < 60; ++seed) {
    const Json json = Json::parse(random_answer(*schema, seed, 1000).value(), nullptr, false);
    ASSERT_TRUE(json.is_object()) << seed;
    EXPECT_TRUE(json.at("a").is_string());
    EXPECT_LE(json.at("b").size(), 4U);
    for (const Json& item : json.at("b")) EXPECT_TRUE(item.is_number_integer() && item <= 999);
  }
}

TEST_F(GrammarTest, C52ASchemaThatRefersToItselfWorks) {
  const auto grammar = compile({.kind = Kind::kJsonSchema, .text = R"({"type": "object",
      "properties": {"next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
      "required": ["next"], "additionalProperties": false})"});
  EXPECT_TRUE(takes(*grammar, R"({"next": {"next": {"next": null}}})"));
  EXPECT_FALSE(takes(*grammar, R"({"next": {}})"));
  EXPECT_THAT(refusal(Kind::kJsonSchema, R"({"$ref": "#"})"), HasSubstr("$ref"));
  // An endless one, which no text fits.
  EXPECT_THAT(refusal(Kind::kJsonSchema, R"({"type": "object", "required": ["a"],
      "properties": {"a": {"$ref": "#"}}, "anyOf": [{"$ref": "#"}]})"),
              Not(IsEmpty()));
}

TEST_F(GrammarTest, C52BadSchemasAreRefusedWithTheirPlace) {
  EXPECT_THAT(refusal(Kind::kJsonSchema, R"({"type": "objekt"})"), StartsWith("#/type: "));
  EXPECT_THAT(refusal(Kind::kJsonSchema, R"({"properties": {"a": {"not": {}}}})"),
              AllOf(StartsWith("#/properties/a/not: "), HasSubstr("\"not\"")));
  EXPECT_THAT(refusal(Kind::kJsonSchema, R"({"oneOf": [{"type": "string"}, {"minLength": 2}]})"),
              HasSubstr("oneOf"));
  EXPECT_THAT(refusal(Kind::kJsonSchema, R"({"type": "string", "pattern": "(a"})"), Not(IsEmpty()));
  EXPECT_THAT(refusal(Kind::kJsonSchema, R"({"type": "string", "pattern": "^a$", "minLength": 2})"),
              Not(IsEmpty()));
  EXPECT_THAT(refusal(Kind::kJsonSchema, "{"), HasSubstr("JSON"));
  EXPECT_THAT(refusal(Kind::kJsonSchema, "3"), HasSubstr("schema"));
}

// What from outside could cost much: refused or served, in any case soon.
TEST_F(GrammarTest, C52WhatCouldGrowIsBounded) {
  const std::string deep = "{\"items\":";
  std::string nested;
  for (int i = 0; i < 1000; ++i) nested += deep;
  std::string options;
  for (int i = 0; i < 3000; ++i) options += fmt::format("{{\"const\": \"{}\"}},", i);
  options.pop_back();
  std::string chain;
  for (int i = 0; i < 4000; ++i) chain += fmt::format("a{}: a{}\n", i, i + 1);
  const std::string all = "[" + options + "]";
  const std::vector<std::pair<Kind, std::string>> costly = {
      {Kind::kJsonSchema, nested + "true" + std::string(1000, '}')},
      {Kind::kJsonSchema, R"({"pattern": ")" + std::string(100'000, 'a') + "\"}"},
      {Kind::kJsonSchema, R"({"type": "string", "pattern": "^(((a{1,90}){1,90}){1,90}){1,90}$"})"},
      {Kind::kJsonSchema, R"({"type": "string", "minLength": 20000, "maxLength": 20000})"},
      {Kind::kJsonSchema, R"({"type": "array", "minItems": 20000, "maxItems": 20000})"},
      {Kind::kJsonSchema, R"({"type": "array", "maxItems": 1000000000})"},
      {Kind::kJsonSchema, R"({"multipleOf": 0.0000001, "type": "number"})"},
      {Kind::kJsonSchema, fmt::format(R"({{"allOf": [{{"anyOf": {0}}}, {{"anyOf": {0}}},
          {{"anyOf": {0}}}]}})",
                                      "[" + options.substr(0, options.find("999")) + "1\"}]")},
      {Kind::kJsonSchema, fmt::format(R"({{"anyOf": {}}})", all)},
      {Kind::kRegex, std::string(100'000, 'a')},
      {Kind::kRegex, "(.*a){200}.{900}"},
      {Kind::kRegex, "((a|b|ab)*c){500}(a?){500}a{500}"},
      {Kind::kRegex, std::string(10'000, '(')},
      {Kind::kLark, "start: a0\n" + chain + "a4000: \"x\"\n"},
      {Kind::kLark, "start: " + std::string(20'000, '(') + "\n"},
      {Kind::kLark, "start: a\na: a a | a | \"\"\n"},
      {Kind::kLark, "start: %json {\"maxItems\": 1000000000}\n"},
      {Kind::kGbnf, "root ::= " + std::string(20'000, '(') + "\n"},
      {Kind::kGbnf, "root ::= root root | root | \"\"\n"},
      {Kind::kGbnf, "root ::= (((\"a\"{9999}){9999}){9999}){9999}\n"}};
  for (const auto& [kind, text] : costly) {
    const auto begin = std::chrono::steady_clock::now();
    const auto grammar = compiler_->compile({.kind = kind, .text = text});
    if (grammar.is_ok()) {
      const auto constraint = (*grammar)->start();
      for (int i = 0; i < 20 && !constraint->is_complete(); ++i) {
        const auto mask = constraint->allowed();
        if (!mask.is_ok()) break;
        int32_t id = tokenizer_->vocabulary_size() - 1;
        while (id > kFirstByte && !has(*mask, id)) --id;
        if (!constraint->accept(id).is_ok()) break;
      }
    }
    const auto seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin);
    EXPECT_LT(seconds.count(), 10) << text.substr(0, 100);
  }
}

TEST_F(GrammarTest, LarkHasSchemasControlTokensAndStrings) {
  const GrammarSource source{.kind = Kind::kLark,
                             .text = "start: <|tool|> \"<tool>\" @args \"</tool>\"\n",
                             .parts = {{.name = "args", .text = R"({"type": "object", "properties":
          {"a": {"const": "ab"}}, "required": ["a"], "additionalProperties": false})"}}};
  const auto constraint = compile(source)->start();
  EXPECT_THAT(allowed(*constraint), ::testing::ElementsAre(kControl));
  ASSERT_TRUE(constraint->accept(kControl).is_ok());
  EXPECT_TRUE(has(*constraint->allowed(), word("<tool>")));
  ASSERT_TRUE(constraint->accept(word("<tool>")).is_ok());
  for (const char c : std::string_view(R"({"a": "ab"}</tool>)")) {
    ASSERT_TRUE(constraint->accept(byte(c)).is_ok()) << c;
  }
  EXPECT_TRUE(constraint->is_complete());
  // The same by number, and with the schema inside.
  const auto by_number = start(Kind::kLark, "start: <[4]> %json {\"const\": 1}\n");
  EXPECT_THAT(allowed(*by_number), ::testing::ElementsAre(kControl));
  EXPECT_THAT(refusal(Kind::kLark, "start: <|nothing|>\n"), HasSubstr("nothing"));
  EXPECT_THAT(refusal(Kind::kLark, "start: @other\n"), HasSubstr("other"));
  EXPECT_THAT(refusal(Kind::kLark, "begin: \"a\"\n"), HasSubstr("start"));
}

TEST_F(GrammarTest, AnEndTokenThatTheGrammarNamesIsNoEndOfItsOwn) {
  const auto constraint = start(Kind::kLark, "start: \"a\" <|im_end|>\n");
  ASSERT_TRUE(constraint->accept(byte('a')).is_ok());
  EXPECT_TRUE(has(*constraint->allowed(), kOtherEnd));
}

TEST_F(GrammarTest, GbnfTakesWhatItsRulesSay) {
  const auto grammar = compile({.kind = Kind::kGbnf, .text = R"(
      root  ::= value # a comment
      value ::= object | list | ("0" | [1-9] [0-9]*) ws
      object ::= "{" ws (pair ("," ws pair)*)? "}" ws
      pair  ::= "\"" [a-z]* "\"" ws ":" ws value
      list  ::= "[" ws (value ("," ws value)*)? "]" ws
      ws    ::= [ \t]?)"});
  EXPECT_TRUE(takes(*grammar, R"({"a":[1,2,{"b": 3}], "":{}})"));
  EXPECT_TRUE(takes(*grammar, "[[],[12 ]]"));
  EXPECT_FALSE(takes(*grammar, R"({"a":})"));
  EXPECT_FALSE(takes(*grammar, "[1,]"));
  EXPECT_FALSE(takes(*grammar, "1  "));
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const auto text = random_answer(*grammar, seed, 200);
    if (text) EXPECT_FALSE(Json::parse(*text, nullptr, false).is_discarded()) << *text;
  }
}

TEST_F(GrammarTest, ARegularExpressionIsForTheWholeAnswer) {
  EXPECT_TRUE(takes(*compile({.kind = Kind::kRegex, .text = "^a/b$"}), "a/b"));
  EXPECT_FALSE(takes(*compile({.kind = Kind::kRegex, .text = "^a/b$"}), "a/bc"));
  EXPECT_TRUE(takes(*compile({.kind = Kind::kRegex, .text = R"(\d{3}\$)"}), "123$"));
  EXPECT_THAT(refusal(Kind::kRegex, "(a"), Not(IsEmpty()));
}

TEST_F(GrammarTest, AChoiceIsOneOfItsTexts) {
  const std::vector<std::string> choices = {"yes", "no (not at all)", "a|b*", "é\n\"\\", "yes!"};
  const auto grammar = compile(choice_grammar(choices));
  for (const std::string& choice : choices) EXPECT_TRUE(takes(*grammar, choice)) << choice;
  EXPECT_FALSE(takes(*grammar, "ye"));
  EXPECT_FALSE(takes(*grammar, "a"));
}

TEST_F(GrammarTest, TextIsFreeUntilTheTrigger) {
  const auto grammar =
      compile({.kind = Kind::kRegex, .text = "[0-9]{2}", .trigger = "<tool>", .repeats = true});
  const auto constraint = grammar->start();
  for (const char c : std::string_view("a <tool but <to")) {
    EXPECT_TRUE((*constraint->allowed()).empty());
    ASSERT_TRUE(constraint->accept(byte(c)).is_ok());
  }
  for (const char c : std::string_view("ol>")) ASSERT_TRUE(constraint->accept(byte(c)).is_ok());
  EXPECT_EQ(allowed(*constraint).size(), 11U);  // ten digits and "12"
  ASSERT_TRUE(constraint->accept(word("12")).is_ok());
  EXPECT_FALSE(constraint->is_complete());
  EXPECT_TRUE((*constraint->allowed()).empty());
  ASSERT_TRUE(constraint->accept(word("<tool>")).is_ok());
  EXPECT_FALSE((*constraint->allowed()).empty());
}

TEST_F(GrammarTest, ATriggersTokenMayHoldTheGrammarsBeginning) {
  // The token "abc": the trigger "ab", then a "c" that the grammar takes, or does not.
  const auto fits = compile({.kind = Kind::kRegex, .text = "cd", .trigger = "ab"})->start();
  ASSERT_TRUE(fits->accept(word("abc")).is_ok());
  EXPECT_THAT(allowed(*fits), ::testing::ElementsAre(byte('d')));
  ASSERT_TRUE(fits->accept(byte('d')).is_ok());
  EXPECT_TRUE(fits->is_complete());
  const auto other = compile({.kind = Kind::kRegex, .text = "xd", .trigger = "ab"})->start();
  EXPECT_FALSE(has(*other->allowed(), word("abc")));
  EXPECT_TRUE(has(*other->allowed(), word("ab")) && has(*other->allowed(), kEnd));
  EXPECT_FALSE(other->accept(word("abc")).is_ok());
  EXPECT_FALSE(other->allowed().is_ok());
  const auto control = compile({.kind = Kind::kRegex, .text = "x", .trigger = "<|tool|>"})->start();
  ASSERT_TRUE(control->accept(kControl).is_ok());
  EXPECT_THAT(allowed(*control), ::testing::ElementsAre(byte('x')));
}

TEST_F(GrammarTest, ATokenThatEndsATriggerAndBreaksTheGrammarIsNotAllowed) {
  // The token "ab" ends the trigger with its "a" and has a "b" behind it.
  for (const bool fits : {false, true}) {
    const std::string text = fits ? "bcd" : "cd";
    const auto constraint = compile({.kind = Kind::kRegex, .text = text, .trigger = "-a"})->start();
    EXPECT_TRUE((*constraint->allowed()).empty());
    ASSERT_TRUE(constraint->accept(byte('-')).is_ok());
    EXPECT_EQ(has(*constraint->allowed(), word("ab")), fits);
    EXPECT_EQ(has(*constraint->allowed(), word("abc")), fits);
    EXPECT_TRUE(has(*constraint->allowed(), byte('a')) && has(*constraint->allowed(), kEnd));
    ASSERT_TRUE(constraint->accept(byte('a')).is_ok());
    EXPECT_THAT(allowed(*constraint), ::testing::Contains(byte(text.front())));
    EXPECT_FALSE(has(*constraint->allowed(), kEnd));
  }
}

// Whether the text, byte by byte, has brought an answer under its grammar.
bool binds(const Grammar& grammar, std::string_view text) {
  const auto constraint = grammar.start();
  for (const char c : text) {
    const auto id = kFirstByte + static_cast<unsigned char>(c);
    if (!constraint->accept(id).is_ok()) return false;
  }
  const auto mask = constraint->allowed();
  return mask.is_ok() && !mask->empty() && !has(*mask, kEnd);
}

TEST_F(GrammarTest, ATriggerDoesNotCountInQuietText) {
  GrammarSource source{.kind = Kind::kRegex,
                       .text = "[0-9]{2}",
                       .trigger = "<tool>",
                       .quiet = {.open = "<t>", .closes = {"</t>"}},
                       .repeats = true};
  const auto first = compile(source);
  EXPECT_FALSE(binds(*first, "\n<t>a <tool>"));
  EXPECT_TRUE(binds(*first, "<t>a <tool></t><tool>"));
  EXPECT_TRUE(binds(*first, "b <t>a <tool>"));
  EXPECT_TRUE(binds(*first, "<t></t><tool>12<t><tool>"));
  source.quiet.starts_inside = true;
  const auto inside = compile(source);
  EXPECT_FALSE(binds(*inside, "<tool>"));
  EXPECT_TRUE(binds(*inside, "</t> <tool>"));
  source.quiet = {.open = "<t>", .closes = {"</t>", "<u>"}, .is_anywhere = true};
  const auto anywhere = compile(source);
  EXPECT_FALSE(binds(*anywhere, "b <t>a <tool>"));
  EXPECT_TRUE(binds(*anywhere, "b <t>a <u><tool>"));
  source.quiet.closes = {};
  EXPECT_FALSE(compiler_->compile(source).is_ok());
}

TEST_F(GrammarTest, ATokenOfTextMayHoldMarksAndAControlTokenIsNoText) {
  const GrammarSource source{.kind = Kind::kRegex,
                             .text = "x",
                             .trigger = "<tool>",
                             .quiet = {.open = "{\"", .closes = {"}"}}};
  const auto constraint = compile(source)->start();
  ASSERT_TRUE(constraint->accept(word("{\"")).is_ok());
  ASSERT_TRUE(constraint->accept(word("<tool>")).is_ok());
  EXPECT_TRUE((*constraint->allowed()).empty());
  ASSERT_TRUE(constraint->accept(word("}▁")).is_ok());
  ASSERT_TRUE(constraint->accept(byte('<')).is_ok());
  ASSERT_TRUE(constraint->accept(kControl).is_ok());
  for (const char c : std::string_view("tool>")) ASSERT_TRUE(constraint->accept(byte(c)).is_ok());
  EXPECT_THAT(allowed(*constraint), ::testing::ElementsAre(byte('x')));
}

TEST_F(GrammarTest, AGrammarHasPartsOfEveryKind) {
  const GrammarSource source{
      .kind = Kind::kLark,
      .text = "start: (\"t\" up_to \" \"?)? (@a | @b | @c | @d)\nup_to[suffix=\"!\"]: /(?s:.*)/\n",
      .parts = {{.name = "a", .kind = Kind::kJsonSchema, .text = R"({"const": [1]})"},
                {.name = "b", .kind = Kind::kRegex, .text = "^x+$"},
                {.name = "c", .kind = Kind::kLark, .text = "start: up_to\nup_to: \"y\" \"@\"\n"},
                {.name = "d", .kind = Kind::kGbnf, .text = "root ::= [0-9] root?\n"}}};
  const auto grammar = compile(source);
  for (const std::string before : {"", "tell! ", "t!"}) {
    for (const std::string answer : {"[1]", "xx", "y@", "304"}) {
      EXPECT_TRUE(takes(*grammar, before + answer)) << before << answer;
      EXPECT_FALSE(takes(*grammar, before + answer + "!")) << before << answer;
    }
    EXPECT_FALSE(takes(*grammar, before));
  }
  GrammarSource bad = source;
  bad.parts[0].text = R"({"type": "objekt"})";
  EXPECT_THAT(compiler_->compile(bad).status().message(), StartsWith("a: #/type: "));
}

TEST_F(GrammarTest, OnlyAGrammarsOwnPartsMayBeReferredTo) {
  EXPECT_THAT(refusal(Kind::kLark, "start: \"a\" @lark_grammar?\n"), HasSubstr("lark_grammar"));
  for (const std::string name : {"a", "b"}) {
    const auto refused = compiler_->compile(
        {.kind = Kind::kLark,
         .text = "start: @a\n",
         .parts = {{.name = "a", .kind = Kind::kLark, .text = "start: \"x\" @" + name + "?\n"},
                   {.name = "b", .kind = Kind::kRegex, .text = "y"}}});
    EXPECT_THAT(refused.status().message(), HasSubstr("line 1: @")) << name;
  }
}

TEST_F(GrammarTest, SourcesThatAreTooLargeAreRefused) {
  const std::string kilobyte(1024, ' ');
  std::string large;
  for (int i = 0; i < 300; ++i) large += kilobyte;
  EXPECT_THAT(refusal(Kind::kJsonSchema, large + "{}"), HasSubstr("bytes"));
  EXPECT_THAT(refusal(Kind::kLark, large), HasSubstr("bytes"));
  EXPECT_THAT(refusal(Kind::kGbnf, large), HasSubstr("bytes"));
  EXPECT_THAT(refusal(Kind::kRegex, large), HasSubstr("bytes"));
  const auto trigger = compiler_->compile({.kind = Kind::kRegex, .text = "a", .trigger = kilobyte});
  EXPECT_FALSE(trigger.is_ok());
}

}  // namespace
}  // namespace shoal::text

#include "server/testing/answer_walk.h"

#include <utility>

#include "base/check.h"
#include "server/testing/word_tokenizer.h"
#include "server/tools/tool_grammar.h"

namespace shoal::server {
namespace {

constexpr size_t kTokensMax = 2000;

ToolOptions tools(ToolChoice choice) {
  return {.tools = {{.name = "weather", .definition = {}, .parameters = R"({"type": "object",
                        "properties": {"city": {"enum": ["Oslo"]}}, "required": ["city"],
                        "additionalProperties": false})"},
                    {.name = "now", .definition = {}, .parameters = R"({"type": "object",
                        "properties": {}, "additionalProperties": false})"}},
          .choice = choice,
          .named = "weather"};
}

std::vector<std::string> marks_of(const text::AnswerFormat& format) {
  std::vector<std::string> marks;
  for (const std::string_view mark : text::format_marks(format, true)) marks.emplace_back(mark);
  return marks;
}

// Words of free text: marks and their parts, what may stand behind them, calls good and bad.
std::vector<std::string> words_of(const text::AnswerFormat& format) {
  std::vector<std::string> words = {
      "a", "\n", " ", "<", ">x", ">{", "weather", "weather\n```json\n", "now",
      // Arguments and calls, whole and broken.
      "{}", "{\"a\": ]}", "{\"a\": }", "{\"name\": \"now\"}",
      "{\"name\": \"now\", \"arguments\": {", "<｜tool▁call▁begin｜>now<｜tool▁sep｜>",
      "[TOOL_CALLS]now",
      // Of Harmony's heads.
      "commentary", "final", "analysis", " to=functions.", " to=functions.now",
      "\nto=functions.now", "to=functions.now", "s.x"};
  for (const std::string& mark : marks_of(format)) {
    size_t half = mark.size() / 2;
    while ((static_cast<unsigned char>(mark[half]) & 0xC0U) == 0x80U) ++half;  // a whole character
    words.push_back(mark.substr(half) + "\n");
    words.push_back(mark.substr(half) + "{\"");
    words.push_back(mark.substr(half) + "now");
    words.push_back(mark + "\n");
    words.push_back(mark + "{");
    words.push_back(mark.substr(0, half));
    words.push_back(mark.substr(half));
  }
  return words;
}

std::unique_ptr<text::Tokenizer> tokenizer_of(const AnswerWalk::Options& options) {
  const std::vector<std::string> marks = marks_of(options.format);
  std::vector<std::string> words = words_of(options.format);
  if (options.has_control_marks) return make_word_tokenizer({}, marks, words);
  words.insert(words.end(), marks.begin(), marks.end());
  return make_word_tokenizer({}, {}, words);
}

std::shared_ptr<const text::Grammar> grammar_of(const AnswerWalk::Options& options,
                                                const text::Tokenizer& tokenizer) {
  const auto compiler = text::GrammarCompiler::create(tokenizer);
  CHECK_MSG(compiler.is_ok(), compiler.status().message().c_str());
  const auto source =
      tool_grammar(tools(options.choice), options.format, tokenizer, options.thought);
  CHECK(source.has_value());
  auto grammar = (*compiler)->compile(*source);
  CHECK_MSG(grammar.is_ok(), grammar.status().message().c_str());
  return std::move(grammar).value();
}

}  // namespace

AnswerWalk::AnswerWalk(const Options& options)
    : options_(options),
      tokenizer_(tokenizer_of(options)),
      grammar_(grammar_of(options, *tokenizer_)) {}

bool AnswerWalk::may_be(int32_t id, std::span<const uint32_t> mask) const {
  if (id < byte_token(0)) return false;
  // In free text the words are enough.
  if (mask.empty()) return id >= word_token(0);
  const auto index = static_cast<size_t>(id);
  return ((mask[index / 32] >> (index % 32)) & 1U) != 0;
}

std::optional<std::vector<std::string>> AnswerWalk::answer(const Choose& choose) const {
  const auto constraint = grammar_->start();
  std::vector<std::string> pieces;
  while (!constraint->is_complete()) {
    const auto mask = constraint->allowed();
    CHECK_MSG(mask.is_ok(), mask.status().message().c_str());
    std::vector<int32_t> ids;
    for (int32_t id = tokenizer_->vocabulary_size() - 1; id >= 0; --id) {
      if (may_be(id, *mask)) ids.push_back(id);
    }
    const bool may_end = mask->empty() || (((*mask)[0] >> kEndToken) & 1U) != 0;
    const auto chosen = choose(ids.size());
    if (!chosen && may_end) return pieces;
    if (ids.empty() || pieces.size() == kTokensMax) return std::nullopt;
    // Who chooses no more goes on with what is different each time.
    const int32_t id = ids[chosen.value_or(pieces.size() * 7) % ids.size()];
    const Status accepted = constraint->accept(id);
    CHECK_MSG(accepted.is_ok(), accepted.message().c_str());
    pieces.emplace_back(tokenizer_->token_bytes(id));
  }
  return pieces;
}

text::AnswerEvents AnswerWalk::read(const std::vector<std::string>& pieces,
                                    bool are_calls_bound) const {
  const auto parser = text::make_answer_parser(
      options_.format, {.functions = {"weather", "now"},
                        .are_calls_bound = are_calls_bound,
                        .starts_in_thought = options_.thought == text::PromptThought::kOpen});
  text::AnswerEvents events;
  for (const std::string& piece : pieces) parser->push(piece, &events);
  parser->finish(&events);
  return events;
}

}  // namespace shoal::server

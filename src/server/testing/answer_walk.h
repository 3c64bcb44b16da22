// AnswerWalk: answers that a model could give under the grammar of its calls, and what is read of
// them.
//
// Its vocabulary has what is awkward: marks in one token and in several, tokens that end a mark and
// have something behind it. Thread rule: one thread at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "server/tools/tool_options.h"
#include "text/answer_format/answer_format.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer.h"

namespace shoal::server {

class AnswerWalk {
 public:
  struct Options {
    text::AnswerFormat format{};
    text::PromptThought thought = text::PromptThought::kNone;
    ToolChoice choice = ToolChoice::kAuto;
    bool has_control_marks = false;  // the marks are control tokens, else text
  };
  // Two functions may be called: weather, with the city Oslo, and now.
  explicit AnswerWalk(const Options& options);

  // A number, of `count` tokens that may come next; nullopt: the answer ends as soon as it may.
  using Choose = std::function<std::optional<size_t>(size_t count)>;
  // Its tokens' texts; nullopt where it has come to no end.
  std::optional<std::vector<std::string>> answer(const Choose& choose) const;

  // What the format's parser makes of it, neighbours of one kind joined.
  text::AnswerEvents read(const std::vector<std::string>& pieces, bool are_calls_bound) const;

 private:
  bool may_be(int32_t id, std::span<const uint32_t> mask) const;

  const Options options_;
  const std::unique_ptr<text::Tokenizer> tokenizer_;
  const std::shared_ptr<const text::Grammar> grammar_;  // as GrammarCompiler gives it
};

}  // namespace shoal::server

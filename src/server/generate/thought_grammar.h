// Grammars of answers in the model's own format: its marks, and the thoughts before what is
// demanded.
//
// Thread rule: LarkRules: one thread at a time; pure functions.
#pragma once

#include <string>
#include <string_view>

#include "text/answer_format/answer_format.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer.h"

namespace shoal::server {

// Writes rules of Lark, in the dialect that text/grammar/grammar.h names. Its strings are JSON's.
// Borrows the tokenizer.
class LarkRules {
 public:
  explicit LarkRules(const text::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // Where a mark is a control token of this model, text of the same spelling is none.
  std::string mark(std::string_view text) const;
  // The same, which nothing else that begins so is taken for. Once.
  std::string first_mark(std::string_view text);
  // Everything up to the mark, and the mark. Once.
  std::string up_to(std::string_view text);
  void rule(std::string_view name, std::string_view body);
  const std::string& rules() const { return rules_; }

 private:
  bool is_control(std::string_view text) const {
    return tokenizer_.find_control_token(text).has_value();
  }

  const text::Tokenizer& tokenizer_;
  std::string rules_;
};

// A thought, as the beginning of a rule; empty where there is none to come.
std::string thought_rule(const text::AnswerFormat& format, text::PromptThought thought,
                         LarkRules* lark);

// Answers that are this after what the format has before it: a thought, white space, Harmony's head
// of the final message.
text::GrammarSource behind_thought(text::GrammarSource answer, const text::AnswerFormat& format,
                                   text::PromptThought thought, const text::Tokenizer& tokenizer);

}  // namespace shoal::server

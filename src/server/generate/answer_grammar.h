// AnswerGrammar: what a request demands of its answers' text, from its fields to its choices.
//
// Thread rule: values and pure functions; compiling takes milliseconds, so not on the sockets'
// thread.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/sampling/token_mask.h"
#include "server/api/error_response.h"
#include "server/generate/generation.h"
#include "text/grammar/grammar.h"

namespace shoal::server {

struct AnswerGrammar {
  text::GrammarSource source{};
  std::string param{};  // the field that asked for it, which errors name
};

// As the scheduler takes it.
std::shared_ptr<const runtime::TokenGrammar> make_token_grammar(
    std::shared_ptr<const text::Grammar> grammar);

// Compiles the grammar where there is one and gives it to every choice; else 400 that names the
// field and says what is wrong.
std::optional<ApiError> constrain(const text::GrammarCompiler& compiler,
                                  const std::optional<AnswerGrammar>& grammar,
                                  std::vector<Choice>* choices);

}  // namespace shoal::server

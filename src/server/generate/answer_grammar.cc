#include "server/generate/answer_grammar.h"

#include <fmt/format.h>

#include <utility>

namespace shoal::server {
namespace {

class Constraint final : public runtime::TokenConstraint {
 public:
  explicit Constraint(std::unique_ptr<text::Constraint> constraint)
      : constraint_(std::move(constraint)) {}
  Result<runtime::TokenMask> allowed() override {
    ASSIGN_OR_RETURN(const auto words, constraint_->allowed());
    return runtime::TokenMask(words);
  }
  Result<bool> accept(runtime::TokenId id) override {
    RETURN_IF_ERROR(constraint_->accept(id));
    return constraint_->is_complete();
  }

 private:
  std::unique_ptr<text::Constraint> constraint_;
};

class Grammar final : public runtime::TokenGrammar {
 public:
  explicit Grammar(std::shared_ptr<const text::Grammar> grammar) : grammar_(std::move(grammar)) {}
  std::unique_ptr<runtime::TokenConstraint> start() const override {
    return std::make_unique<Constraint>(grammar_->start());
  }

 private:
  // Shared: requests of one answer each may have the same one.
  std::shared_ptr<const text::Grammar> grammar_;
};

}  // namespace

std::shared_ptr<const runtime::TokenGrammar> make_token_grammar(
    std::shared_ptr<const text::Grammar> grammar) {
  return std::make_shared<Grammar>(std::move(grammar));
}

std::optional<ApiError> constrain(const text::GrammarCompiler& compiler,
                                  const std::optional<AnswerGrammar>& grammar,
                                  std::vector<Choice>* choices) {
  if (!grammar) return std::nullopt;
  auto compiled = compiler.compile(grammar->source);
  if (!compiled.is_ok()) {
    return ApiError{.message = fmt::format("{}: {}", grammar->param, compiled.status().message()),
                    .param = grammar->param};
  }
  const auto shared = make_token_grammar(std::move(compiled).value());
  for (Choice& choice : *choices) choice.request.grammar = shared;
  return std::nullopt;
}

}  // namespace shoal::server

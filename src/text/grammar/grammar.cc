#include "text/grammar/grammar.h"

#include <utility>

#include "base/check.h"
#include "text/rust_bridge.h"

namespace shoal::text {
namespace {

int32_t kind_of(GrammarSource::Kind kind) {
  switch (kind) {
    case GrammarSource::Kind::kJsonSchema:
      return SHOAL_GRAMMAR_JSON_SCHEMA;
    case GrammarSource::Kind::kRegex:
      return SHOAL_GRAMMAR_REGEX;
    case GrammarSource::Kind::kLark:
      return SHOAL_GRAMMAR_LARK;
    case GrammarSource::Kind::kGbnf:
      return SHOAL_GRAMMAR_GBNF;
  }
  CHECK_MSG(false, "no kind of grammar");
  return SHOAL_GRAMMAR_LARK;
}

// The expression that matches this text alone.
std::string escaped(std::string_view text) {
  constexpr std::string_view kMeta = R"(\.+*?()|[]{}^$#&-~/)";
  std::string expression;
  for (const char c : text) {
    if (kMeta.find(c) != std::string_view::npos) expression += '\\';
    expression += c;
  }
  return expression;
}

}  // namespace

GrammarSource json_object_grammar() {
  return {.kind = GrammarSource::Kind::kJsonSchema, .text = R"({"type": "object"})"};
}

GrammarSource choice_grammar(std::span<const std::string> choices) {
  std::string expression;
  for (const std::string& choice : choices) {
    if (&choice != choices.data()) expression += '|';
    expression += "(?:" + escaped(choice) + ")";
  }
  return {.kind = GrammarSource::Kind::kRegex, .text = std::move(expression)};
}

void Constraint::Free::operator()(ShoalConstraint* constraint) const {
  shoal_constraint_free(constraint);
}

Constraint::Constraint(ShoalConstraint* impl) : impl_(impl) {}
Constraint::~Constraint() = default;

Result<std::span<const uint32_t>> Constraint::allowed() {
  ShoalMask mask{};
  ShoalBuffer error{};
  const RustCall call;
  const int code = shoal_constraint_allowed(impl_.get(), &mask, &error);
  if (code != SHOAL_TEXT_OK) return failure(code, error);
  return std::span<const uint32_t>(mask.words, mask.count);
}

Status Constraint::accept(int32_t id) {
  int is_complete = 0;
  ShoalBuffer error{};
  const RustCall call;
  const int code = shoal_constraint_accept(impl_.get(), id, &is_complete, &error);
  if (code != SHOAL_TEXT_OK) return failure(code, error);
  is_complete_ = is_complete != 0;
  return Status::ok();
}

void Grammar::Free::operator()(ShoalGrammar* grammar) const { shoal_grammar_free(grammar); }

Grammar::Grammar(ShoalGrammar* impl) : impl_(impl) {}
Grammar::~Grammar() = default;

std::unique_ptr<Constraint> Grammar::start() const {
  ShoalConstraint* constraint = nullptr;
  ShoalBuffer error{};
  const RustCall call;
  const int code = shoal_grammar_start(impl_.get(), &constraint, &error);
  CHECK_MSG(code == SHOAL_TEXT_OK, take(error).c_str());
  return std::unique_ptr<Constraint>(new Constraint(constraint));
}

void GrammarCompiler::Free::operator()(ShoalGrammarCompiler* compiler) const {
  shoal_grammar_compiler_free(compiler);
}

GrammarCompiler::GrammarCompiler(ShoalGrammarCompiler* impl) : impl_(impl) {}
GrammarCompiler::~GrammarCompiler() = default;

Result<std::unique_ptr<GrammarCompiler>> GrammarCompiler::create(const Tokenizer& tokenizer) {
  ShoalGrammarCompiler* compiler = nullptr;
  ShoalBuffer error{};
  const int code = shoal_grammar_compiler_new(tokenizer.impl_.get(), &compiler, &error);
  if (code != SHOAL_TEXT_OK) return failure(code, error);
  return std::unique_ptr<GrammarCompiler>(new GrammarCompiler(compiler));
}

Result<std::shared_ptr<const Grammar>> GrammarCompiler::compile(const GrammarSource& source) const {
  std::vector<ShoalGrammarPart> parts;
  parts.reserve(source.parts.size());
  for (const GrammarSource::Part& part : source.parts) {
    parts.push_back(
        {.name = borrow(part.name), .kind = kind_of(part.kind), .text = borrow(part.text)});
  }
  std::vector<ShoalText> closes;
  closes.reserve(source.quiet.closes.size());
  for (const std::string& close : source.quiet.closes) closes.push_back(borrow(close));
  const ShoalGrammarSource raw = {
      .kind = kind_of(source.kind),
      .text = borrow(source.text),
      .parts = parts.data(),
      .part_count = parts.size(),
      .trigger = borrow(source.trigger),
      .quiet = {.open = borrow(source.quiet.open),
                .closes = closes.data(),
                .close_count = closes.size(),
                .is_anywhere = source.quiet.is_anywhere ? 1 : 0,
                .starts_inside = source.quiet.starts_inside ? 1 : 0},
      .repeats = source.repeats ? 1 : 0,
  };
  ShoalGrammar* grammar = nullptr;
  ShoalBuffer error{};
  const RustCall call;
  const int code = shoal_grammar_compile(impl_.get(), &raw, &grammar, &error);
  if (code != SHOAL_TEXT_OK) return failure(code, error);
  return std::shared_ptr<const Grammar>(new Grammar(grammar));
}

}  // namespace shoal::text

// Grammar: which texts an answer may be, as masks of the tokens that may come next.
//
// Three steps: a GrammarCompiler for a tokenizer (it holds the trie of all tokens; one for a loaded
// model), a Grammar for a request, a Constraint for each of its answers. The work is done by the
// crate llguidance: an Earley parser over lexemes that are derivatives of regular expressions, so
// that a mask is exact for every tokenization, characters of several tokens included.
// Foreign input: a source is bounded in bytes (schemas 256 KiB together, Lark and GBNF 64 KiB, a
// regular expression 32 KiB) and in nesting, its compilation in steps, memory and time, a mask in
// steps and a Constraint in memory; what passes a bound is kRequest and says which.
// Thread rule: GrammarCompiler and Grammar are immutable, any thread; a Constraint is one thread's
// at a time. Each of the three, and the tokenizer, may end before the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "text/tokenizer.h"

struct ShoalGrammarCompiler;
struct ShoalGrammar;
struct ShoalConstraint;

namespace shoal::text {

// Text in which a trigger does not count, between its marks: text, or control tokens by their
// spelling. None where there is neither a mark that opens it nor a start inside.
struct QuietText {
  std::string open{};
  std::vector<std::string> closes{};  // any of these ends it
  // It may begin anywhere and again; else at the answer's start, behind white space.
  bool is_anywhere = false;
  bool starts_inside = false;
};

struct GrammarSource {
  enum class Kind {
    // A JSON schema (draft 2020-12, and what older drafts share with it). Text in the form of
    // Python's json.dumps: ", " and ": " between parts, no other white space, so that an answer
    // cannot be white space without end; properties in the schema's order. A keyword that restricts
    // and is not enforced is an error that names it and its place; "format" is enforced where it is
    // date-time, time, date, duration, email, hostname, ipv4, ipv6 or uuid.
    kJsonSchema,
    // A regular expression for the whole answer, in the syntax of Rust's crate regex; anchors at
    // its ends are allowed and mean nothing.
    kRegex,
    // Lark in llguidance's dialect
    // (https://github.com/guidance-ai/llguidance/blob/main/docs/syntax.md); it starts at `start`.
    // Beside Lark's own: `%json { schema }`, which is as kJsonSchema, `@name` (see `parts`), and
    // control tokens as <|name|> or <[id]>. A string such as "<tool_call>" means the text
    // however it is tokenized, a user-defined token of that spelling included, but never a control
    // token.
    kLark,
    // llama.cpp's GBNF (https://github.com/ggml-org/llama.cpp/blob/master/grammars/README.md); it
    // starts at `root`.
    kGbnf,
  };
  Kind kind = Kind::kJsonSchema;
  std::string text;

  // A grammar that this one, of kLark, names as `@name`. It cannot name others.
  struct Part {
    std::string name;  // letters, digits, "_" and "-"
    Kind kind = Kind::kJsonSchema;
    std::string text;
  };
  std::vector<Part> parts{};

  // Not empty: the answer is free text until it holds this string (of text or of a control token's
  // spelling), and has to go on by the grammar right behind it: a token that completes the trigger
  // and has something else behind it is not allowed. Other control tokens are no text. Free text
  // costs nothing but where it may be about to be a trigger.
  std::string trigger{};
  QuietText quiet{};  // of a trigger
  // Of a trigger: once the grammar is complete the text is free again, and the trigger counts
  // again; else the answer ends there.
  bool repeats = false;
};

// {"type": "object"}: any JSON object.
GrammarSource json_object_grammar();
// One of these texts.
GrammarSource choice_grammar(std::span<const std::string> choices);

class Constraint {
 public:
  ~Constraint();
  Constraint(const Constraint&) = delete;
  Constraint& operator=(const Constraint&) = delete;

  // The tokens that may come next, one bit for each id of the vocabulary from the lowest bit of
  // the first word on; empty: all of them. Where the answer may end here, the tokenizer's
  // end-of-generation tokens are among them. Valid until the next call. kRequest where no token can
  // go on (the vocabulary cannot spell what the grammar wants) or the grammar is too complex here.
  // Not to be called once is_complete().
  Result<std::span<const uint32_t>> allowed();

  // The answer goes on with this token, one that allowed() has and that is no end of generation.
  // kRequest for any other, after which only allowed() and accept() fail.
  Status accept(int32_t id);

  // The answer is whole and nothing may follow.
  bool is_complete() const { return is_complete_; }

 private:
  friend class Grammar;
  struct Free {
    void operator()(ShoalConstraint* constraint) const;
  };
  explicit Constraint(ShoalConstraint* impl);

  std::unique_ptr<ShoalConstraint, Free> impl_;
  bool is_complete_ = false;
};

class Grammar {
 public:
  ~Grammar();
  Grammar(const Grammar&) = delete;
  Grammar& operator=(const Grammar&) = delete;

  // At the start of an answer; independent of all others. Takes as long as copying the grammar.
  std::unique_ptr<Constraint> start() const;

 private:
  friend class GrammarCompiler;
  struct Free {
    void operator()(ShoalGrammar* grammar) const;
  };
  explicit Grammar(ShoalGrammar* impl);

  std::unique_ptr<ShoalGrammar, Free> impl_;
};

class GrammarCompiler {
 public:
  // Builds the trie: tens of milliseconds, and some bytes for each byte of the vocabulary.
  static Result<std::unique_ptr<GrammarCompiler>> create(const Tokenizer& tokenizer);
  ~GrammarCompiler();
  GrammarCompiler(const GrammarCompiler&) = delete;
  GrammarCompiler& operator=(const GrammarCompiler&) = delete;

  // kRequest: what is wrong with the source and, where that is known, where. Shared by the answers
  // of a request.
  Result<std::shared_ptr<const Grammar>> compile(const GrammarSource& source) const;

 private:
  struct Free {
    void operator()(ShoalGrammarCompiler* compiler) const;
  };
  explicit GrammarCompiler(ShoalGrammarCompiler* impl);

  std::unique_ptr<ShoalGrammarCompiler, Free> impl_;
};

}  // namespace shoal::text

// AnswerText: the tokens of one answer, turned into text in whole characters, up to a stop string.
//
// Every token's details come with the piece of text that its own last byte is in: they are held as
// long as the text is. All pieces joined are the answer; all details joined are its tokens in
// order, without those that lie wholly behind the place where a stop string cut it.
// Thread rule: one thread at a time. Borrows the tokenizer.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/serve/generation.h"
#include "runtime/stop_matcher.h"
#include "text/answer_format/answer_parser.h"
#include "text/detokenizer.h"

namespace shoal::server {

// A token as the scheduler gave it, owned.
struct AnswerToken {
  runtime::TokenId id = 0;
  float logprob = 0;
  std::vector<runtime::TokenLogprob> top{};
};

// What a token of an answer belongs to.
enum class AnswerPart { kContent, kThought, kCall };

struct AnswerPiece {
  std::string text{};  // as the model wrote it
  std::vector<AnswerToken> tokens{};
  text::AnswerEvents events{};  // what the text says
  AnswerPart part = AnswerPart::kContent;
  bool is_empty() const { return text.empty() && tokens.empty() && events.empty(); }
};

class AnswerText {
 public:
  // Control tokens are no text, except for those that are shown.
  AnswerText(const text::Tokenizer& tokenizer, runtime::StopMatcher matcher,
             std::vector<runtime::TokenId> shown = {})
      : tokenizer_(tokenizer),
        shown_(std::move(shown)),
        detokenizer_(tokenizer, {.skip_special = false, .continues = true}),
        matcher_(std::move(matcher)) {}

  // Appends what is certain to *piece. Not after a stop string was met.
  void push(AnswerToken token, AnswerPiece* piece);
  // The end of the answer: what was held back.
  void finish(AnswerPiece* piece);
  // The stop string that ended it.
  std::optional<std::string_view> stop() const { return matcher_.matched(); }

 private:
  struct Held {
    AnswerToken token;
    size_t begin = 0;           // in the text before stop strings are looked for
    std::optional<size_t> end;  // none while its last character is not whole
  };
  bool is_text(runtime::TokenId id) const;
  void release(const std::string& text, AnswerPiece* piece);

  const text::Tokenizer& tokenizer_;
  const std::vector<runtime::TokenId> shown_;
  text::Detokenizer detokenizer_;
  runtime::StopMatcher matcher_;
  std::deque<Held> held_;
  size_t seen_ = 0;      // bytes of text that the detokenizer gave
  size_t released_ = 0;  // bytes of it that were let through
};

}  // namespace shoal::server

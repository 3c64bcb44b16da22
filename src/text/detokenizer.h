// Detokenizer: token ids to text, one at a time, never splitting a character.
//
// Invariant: every string that push() and finish() return is whole UTF-8, and all of them joined
// are what Tokenizer::decode gives for all ids at once. Borrows the tokenizer, which must outlive
// it. Thread rule: one thread at a time.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer.h"

namespace shoal::text {

class Detokenizer {
 public:
  // options.continues: see DecodeOptions; set it for an answer that follows a prompt.
  explicit Detokenizer(const Tokenizer& tokenizer, const DecodeOptions& options = {});

  // The text that is certain once this token is known; empty while a character is incomplete.
  // CHECKs that the id is in the vocabulary.
  std::string push(int32_t id);
  // The end: a character that was cut off becomes one U+FFFD. Ready for a new text afterwards.
  std::string finish();

 private:
  const Tokenizer* tokenizer_;
  DecodeOptions options_;
  std::string held_;  // the first bytes of an incomplete character: at most 3
  int32_t spaces_to_strip_ = 0;
};

}  // namespace shoal::text

#include "text/detokenizer.h"

#include <string_view>

#include "text/utf8.h"

namespace shoal::text {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, const DecodeOptions& options)
    : tokenizer_(&tokenizer),
      options_(options),
      spaces_to_strip_(options.continues ? 0 : tokenizer.leading_spaces()) {}

std::string Detokenizer::push(int32_t id) {
  std::string text;
  if (options_.skip_special && tokenizer_->token_kind(id) == TokenKind::kControl) return text;
  std::string_view bytes = tokenizer_->token_bytes(id);
  while (spaces_to_strip_ > 0 && !bytes.empty()) {
    if (bytes.front() != ' ') {
      spaces_to_strip_ = 0;
      break;
    }
    bytes.remove_prefix(1);
    --spaces_to_strip_;
  }
  held_ += bytes;
  take_characters(held_, text);
  return text;
}

std::string Detokenizer::finish() {
  // Bytes that are held are the beginning of one character.
  std::string text(held_.empty() ? std::string_view() : kReplacementCharacter);
  held_.clear();
  spaces_to_strip_ = options_.continues ? 0 : tokenizer_->leading_spaces();
  return text;
}

}  // namespace shoal::text

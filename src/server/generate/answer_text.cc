#include "server/generate/answer_text.h"

#include <algorithm>
#include <utility>

namespace shoal::server {

bool AnswerText::is_text(runtime::TokenId id) const {
  return tokenizer_.token_kind(id) != text::TokenKind::kControl ||
         std::ranges::find(shown_, id) != shown_.end();
}

void AnswerText::push(AnswerToken token, AnswerPiece* piece) {
  const std::string text = is_text(token.id) ? detokenizer_.push(token.id) : std::string();
  held_.push_back({.token = std::move(token), .begin = seen_, .end = {}});
  seen_ += text.size();
  // A token that ended in the middle of a character ends where that character does.
  if (!text.empty()) {
    for (Held& held : held_) {
      if (!held.end) held.end = seen_;
    }
  }
  release(matcher_.push(text), piece);
}

void AnswerText::finish(AnswerPiece* piece) {
  if (!matcher_.matched()) {
    const std::string text = detokenizer_.finish();
    seen_ += text.size();
    std::string rest = matcher_.push(text);
    if (!matcher_.matched()) rest += matcher_.finish();
    release(rest, piece);
  }
  for (Held& held : held_) {
    const bool is_cut_off = matcher_.matched() && held.begin >= released_;
    if (!is_cut_off) piece->tokens.push_back(std::move(held.token));
  }
  held_.clear();
}

void AnswerText::release(const std::string& text, AnswerPiece* piece) {
  released_ += text.size();
  piece->text += text;
  while (!held_.empty() && held_.front().end && *held_.front().end <= released_) {
    piece->tokens.push_back(std::move(held_.front().token));
    held_.pop_front();
  }
}

}  // namespace shoal::server

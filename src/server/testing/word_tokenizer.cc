#include "server/testing/word_tokenizer.h"

#include <fmt/format.h>

#include "base/check.h"

namespace shoal::server {

std::unique_ptr<text::Tokenizer> make_word_tokenizer(const std::vector<std::string>& words,
                                                     const std::vector<std::string>& control,
                                                     const std::vector<std::string>& literal) {
  text::Vocabulary vocabulary;
  vocabulary.model = "llama";
  const auto add = [&](std::string text, text::TokenKind kind) {
    vocabulary.tokens.push_back(std::move(text));
    vocabulary.types.push_back(static_cast<int32_t>(kind));
  };
  add("<unk>", text::TokenKind::kUnknown);
  add("<s>", text::TokenKind::kControl);
  add("</s>", text::TokenKind::kControl);
  add("<|tool|>", text::TokenKind::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    add(fmt::format("<0x{:02X}>", byte), text::TokenKind::kByte);
  }
  for (const std::string& word : words) add(word, text::TokenKind::kNormal);
  for (const std::string& mark : control) add(mark, text::TokenKind::kControl);
  for (const std::string& word : literal) add(word, text::TokenKind::kUserDefined);
  vocabulary.scores.assign(vocabulary.tokens.size(), 0.0F);
  vocabulary.bos = 1;
  vocabulary.eos = kEndToken;
  vocabulary.add_bos = true;
  vocabulary.add_space_prefix = false;
  auto tokenizer = text::Tokenizer::from_vocabulary(vocabulary);
  CHECK_MSG(tokenizer.is_ok(), tokenizer.status().message().c_str());
  return std::move(tokenizer).value();
}

std::vector<int32_t> byte_tokens(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char byte : text) ids.push_back(byte_token(static_cast<unsigned char>(byte)));
  return ids;
}

std::vector<int32_t> marked_tokens(const text::Tokenizer& tokenizer,
                                   const std::vector<std::string>& marks, std::string_view text) {
  std::vector<int32_t> ids;
  while (!text.empty()) {
    size_t bytes = 1;
    for (const std::string& mark : marks) {
      if (text.starts_with(mark)) bytes = mark.size();
    }
    ids.push_back(bytes == 1 ? byte_token(static_cast<unsigned char>(text[0]))
                             : *tokenizer.find_token(text.substr(0, bytes)));
    text.remove_prefix(bytes);
  }
  return ids;
}

bool takes(const text::Grammar& grammar, const std::vector<int32_t>& ids) {
  const auto constraint = grammar.start();
  const auto is_allowed = [&constraint](int32_t id) {
    const auto words = constraint->allowed();
    if (!words.is_ok()) return false;
    const auto index = static_cast<size_t>(id);
    return words->empty() || (((*words)[index / 32] >> (index % 32)) & 1U) != 0;
  };
  for (const int32_t id : ids) {
    if (constraint->is_complete() || !is_allowed(id)) return false;
    if (!constraint->accept(id).is_ok()) return false;
  }
  return constraint->is_complete() || is_allowed(kEndToken);
}

}  // namespace shoal::server

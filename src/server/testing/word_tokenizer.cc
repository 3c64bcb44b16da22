#include "server/testing/word_tokenizer.h"

#include <fmt/format.h>

#include "base/check.h"

namespace shoal::server {

std::unique_ptr<text::Tokenizer> make_word_tokenizer(const std::vector<std::string>& words,
                                                     const std::vector<std::string>& control) {
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

}  // namespace shoal::server

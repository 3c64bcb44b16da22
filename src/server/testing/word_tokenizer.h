// WordTokenizer: a tokenizer of every byte and some words, for tests.
//
// Thread rule: pure functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "text/grammar/grammar.h"
#include "text/tokenizer.h"

namespace shoal::server {

// Ids: 0 <unk>, 1 <s> (put before every prompt), 2 </s>, 3 <|tool|> (a control token), then the
// bytes, then the words; "▁" is a space in them.
inline constexpr int32_t kEndToken = 2;
inline constexpr int32_t kControlToken = 3;
constexpr int32_t byte_token(int byte) { return 4 + byte; }
constexpr int32_t word_token(int word) { return 4 + 256 + word; }

// control: more control tokens, behind the words. literal: words behind these in which "▁" is one.
std::unique_ptr<text::Tokenizer> make_word_tokenizer(const std::vector<std::string>& words,
                                                     const std::vector<std::string>& control = {},
                                                     const std::vector<std::string>& literal = {});

// The byte tokens of a text.
std::vector<int32_t> byte_tokens(std::string_view text);
// The same with those of its parts that are such marks as a token each.
std::vector<int32_t> marked_tokens(const text::Tokenizer& tokenizer,
                                   const std::vector<std::string>& marks, std::string_view text);
// Whether an answer may be these tokens and end there.
bool takes(const text::Grammar& grammar, const std::vector<int32_t>& ids);

}  // namespace shoal::server

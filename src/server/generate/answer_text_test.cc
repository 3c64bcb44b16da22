#include "server/generate/answer_text.h"

#include <gmock/gmock.h>

#include "server/testing/word_tokenizer.h"

namespace shoal::server {
namespace {

// Pushes tokens one at a time; keeps what came when.
class Stream {
 public:
  Stream(const text::Tokenizer& tokenizer, std::vector<std::string> stops)
      : tokenizer_(tokenizer), text_(tokenizer, matcher(std::move(stops))) {}

  std::string push(int32_t id) {
    AnswerPiece piece;
    text_.push({.id = id, .logprob = -1}, &piece);
    return keep(piece);
  }
  std::string finish() {
    AnswerPiece piece;
    text_.finish(&piece);
    return keep(piece);
  }
  bool has_stopped() const { return text_.stop().has_value(); }
  const std::string& whole() const { return whole_; }
  // The bytes of the tokens whose details came.
  const std::string& token_bytes() const { return token_bytes_; }

 private:
  static runtime::StopMatcher matcher(std::vector<std::string> stops) {
    auto made = runtime::StopMatcher::create(std::move(stops));
    CHECK_MSG(made.is_ok(), made.status().message().c_str());
    return std::move(made).value();
  }
  std::string keep(const AnswerPiece& piece) {
    whole_ += piece.text;
    for (const AnswerToken& token : piece.tokens) {
      if (tokenizer_.token_kind(token.id) != text::TokenKind::kControl) {
        token_bytes_ += tokenizer_.token_bytes(token.id);
      }
    }
    return piece.text;
  }
  const text::Tokenizer& tokenizer_;
  AnswerText text_;
  std::string whole_;
  std::string token_bytes_;
};

class AnswerTextTest : public ::testing::Test {
 protected:
  std::unique_ptr<text::Tokenizer> tokenizer_ =
      make_word_tokenizer({"▁one", "▁two", "▁three", "END", "a|b"});
  int32_t one_ = word_token(0), two_ = word_token(1), end_ = word_token(3), bar_ = word_token(4);
};

TEST_F(AnswerTextTest, C40CharactersOfSeveralTokensComeWhole) {
  for (const std::string text : {"👩‍👩‍👧‍👦", "漢字", "e\u0301", "aé漢👍z"}) {
    Stream stream(*tokenizer_, {});
    std::string joined;
    for (const int32_t id : byte_tokens(text)) {
      const std::string piece = stream.push(id);
      EXPECT_EQ(piece.find("\xEF\xBF\xBD"), std::string::npos);
      joined += piece;
    }
    joined += stream.finish();
    EXPECT_EQ(joined, text);
    EXPECT_EQ(stream.token_bytes(), text);
  }
}

TEST_F(AnswerTextTest, C40ACharacterThatIsCutOffBecomesOneReplacement) {
  Stream stream(*tokenizer_, {});
  stream.push(byte_token(0xF0));
  stream.push(byte_token(0x9F));
  EXPECT_EQ(stream.whole(), "");
  EXPECT_EQ(stream.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.token_bytes(), "\xF0\x9F");
}

TEST_F(AnswerTextTest, C41DetailsComeWithTheCharacterThatTheirTokenEndsIn) {
  Stream stream(*tokenizer_, {});
  stream.push(one_);
  EXPECT_EQ(stream.token_bytes(), " one");
  stream.push(byte_token(0xC3));
  EXPECT_EQ(stream.token_bytes(), " one");
  stream.push(byte_token(0xA9));
  EXPECT_EQ(stream.token_bytes(), " oneé");
}

TEST_F(AnswerTextTest, C41AControlTokenHasDetailsAndNoText) {
  AnswerText text(*tokenizer_, *runtime::StopMatcher::create({}));
  AnswerPiece piece;
  text.push({.id = kControlToken, .logprob = -1}, &piece);
  text.push({.id = one_, .logprob = -1}, &piece);
  text.finish(&piece);
  EXPECT_EQ(piece.text, " one");
  ASSERT_EQ(piece.tokens.size(), 2U);
  EXPECT_EQ(piece.tokens[0].id, kControlToken);
}

TEST_F(AnswerTextTest, C43WhatBeginsAStopAndIsNoneIsDeliveredAtTheEnd) {
  Stream stream(*tokenizer_, {"woQZX"});
  stream.push(one_);
  EXPECT_EQ(stream.push(two_), " t");
  EXPECT_EQ(stream.token_bytes(), " one");
  EXPECT_EQ(stream.finish(), "wo");
  EXPECT_EQ(stream.whole(), " one two");
  EXPECT_EQ(stream.token_bytes(), " one two");
}

TEST_F(AnswerTextTest, C43ALongStopThatDoesNotBeginDelaysNothing) {
  Stream stream(*tokenizer_, {std::string(500, 'x')});
  EXPECT_EQ(stream.push(one_), " one");
  EXPECT_EQ(stream.push(two_), " two");
}

TEST_F(AnswerTextTest, AStopStringCutsTextAndTokensBehindIt) {
  Stream stream(*tokenizer_, {"END"});
  stream.push(one_);
  stream.push(end_);
  EXPECT_TRUE(stream.has_stopped());
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.whole(), " one");
  EXPECT_EQ(stream.token_bytes(), " one");
}

TEST_F(AnswerTextTest, ATokenThatAStopStringCutsThroughKeepsItsDetails) {
  Stream stream(*tokenizer_, {"|"});
  stream.push(one_);
  EXPECT_EQ(stream.push(bar_), "a");
  EXPECT_TRUE(stream.has_stopped());
  stream.finish();
  EXPECT_EQ(stream.whole(), " onea");
  EXPECT_EQ(stream.token_bytes(), " onea|b");
}

}  // namespace
}  // namespace shoal::server

#include "text/detokenizer.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "text/test_data.h"
#include "text/tokenizer_folder.h"
#include "text/utf8.h"

namespace shoal::text {
namespace {

// A SentencePiece vocabulary with every byte: ids 3 to 258, then the pieces.
std::unique_ptr<Tokenizer> byte_tokenizer(const std::vector<std::string>& pieces) {
  Vocabulary vocabulary;
  vocabulary.model = "llama";
  vocabulary.tokens = {"<unk>", "<s>", "</s>"};
  vocabulary.types = {2, 3, 3};
  for (int byte = 0; byte < 256; ++byte) {
    std::array<char, 8> text{};
    std::snprintf(text.data(), text.size(), "<0x%02X>", static_cast<unsigned>(byte));
    vocabulary.tokens.emplace_back(text.data());
    vocabulary.types.push_back(static_cast<int32_t>(TokenKind::kByte));
  }
  for (const std::string& piece : pieces) {
    vocabulary.tokens.push_back(piece);
    vocabulary.types.push_back(static_cast<int32_t>(TokenKind::kNormal));
  }
  vocabulary.scores.assign(vocabulary.tokens.size(), 0.0F);
  auto tokenizer = Tokenizer::from_vocabulary(vocabulary);
  CHECK_MSG(tokenizer.is_ok(), tokenizer.status().message().c_str());
  return std::move(tokenizer).value();
}

int32_t byte_id(int byte) { return 3 + byte; }

TEST(Detokenizer, HoldsACharacterUntilItIsWhole) {
  const auto tokenizer = byte_tokenizer({"▁Hi"});
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.push(259), "Hi");
  EXPECT_EQ(detokenizer.push(byte_id(0xF0)), "");
  EXPECT_EQ(detokenizer.push(byte_id(0x9F)), "");
  EXPECT_EQ(detokenizer.push(byte_id(0x99)), "");
  EXPECT_EQ(detokenizer.push(byte_id(0x82)), "🙂");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, EndsATruncatedCharacterWithOneReplacement) {
  const auto tokenizer = byte_tokenizer({"▁Hi"});
  Detokenizer detokenizer(*tokenizer);
  for (const int byte : {0xF0, 0x9F, 0x99}) EXPECT_EQ(detokenizer.push(byte_id(byte)), "");
  EXPECT_EQ(detokenizer.finish(), kReplacementCharacter);
  EXPECT_EQ(detokenizer.finish(), "");
  EXPECT_EQ(detokenizer.push(259), "Hi");  // ready for a new text
}

TEST(Detokenizer, TakesAwayTheOneSpaceThatTheTokenizerAdded) {
  const auto tokenizer = byte_tokenizer({"▁", "▁Hi"});
  const std::vector<int32_t> ids = {1, 259, 260, 260};  // <s> ▁ ▁Hi ▁Hi
  EXPECT_EQ(*tokenizer->decode(ids), " Hi Hi");
  EXPECT_EQ(*tokenizer->decode(ids, {.continues = true}), "  Hi Hi");
  EXPECT_EQ(*tokenizer->decode(ids, {.skip_special = false}), "<s>  Hi Hi");
}

TEST(Detokenizer, PartsJoinedAreTheWholeForAnyIds) {
  const auto tokenizer = byte_tokenizer({"▁", "▁Hi", "é", "🙂", "a"});
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::vector<int32_t> ids;
    for (size_t i = random() % 20; i > 0; --i) {
      // Mostly bytes that begin or continue characters.
      const bool is_byte = random() % 4 != 0;
      ids.push_back(is_byte ? byte_id(static_cast<int>(0x80 + random() % 0x80))
                            : static_cast<int32_t>(random() % 264));
    }
    Detokenizer detokenizer(*tokenizer);
    std::string joined;
    for (const int32_t id : ids) {
      const std::string part = detokenizer.push(id);
      std::string pending = part;
      std::string whole;
      take_characters(pending, whole);
      EXPECT_TRUE(pending.empty() && whole == part) << "not whole characters";
      joined += part;
    }
    const std::string rest = detokenizer.finish();
    EXPECT_TRUE(rest.empty() || rest == kReplacementCharacter);
    EXPECT_EQ(joined + rest, *tokenizer->decode(ids));
  }
}

TEST(Detokenizer, StreamsPublishedTokenizersAsTheyDecode) {
  for (const char* name : {"llama2", "qwen3"}) {
    REQUIRE_FETCHED(name);
    auto folder = load_tokenizer_folder((fetched_folder() / name).string());
    ASSERT_TRUE(folder.is_ok()) << folder.status().message();
    for (const auto& entry : published(name).at("tokenize")) {
      Detokenizer detokenizer(*folder->tokenizer, {.skip_special = false});
      std::string joined;
      for (const int32_t id : entry.at("ids").get<std::vector<int32_t>>()) {
        joined += detokenizer.push(id);
      }
      joined += detokenizer.finish();
      EXPECT_EQ(joined, entry.at("decoded").get<std::string>()) << name;
    }
  }
}

TEST(TextCases, C41_TheBytesOfTokensAreRawAndJoinToTheText) {
  REQUIRE_FETCHED("qwen3");
  auto folder = load_tokenizer_folder((fetched_folder() / "qwen3").string());
  ASSERT_TRUE(folder.is_ok()) << folder.status().message();
  const Tokenizer& tokenizer = *folder->tokenizer;
  const std::string text = "a🙃👩\u200d👧é世";
  auto ids = tokenizer.encode(text);
  ASSERT_TRUE(ids.is_ok());
  std::string joined;
  bool has_partial = false;
  for (const int32_t id : *ids) {
    std::string pending(tokenizer.token_bytes(id));
    joined += pending;
    std::string whole;
    take_characters(pending, whole);
    has_partial |= !pending.empty();
    EXPECT_NE(tokenizer.token_bytes(id), kReplacementCharacter);
  }
  EXPECT_TRUE(has_partial) << "the text has no character of several tokens";
  EXPECT_EQ(joined, text);
}

}  // namespace
}  // namespace shoal::text

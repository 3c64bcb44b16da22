#include "text/vocabulary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "text/tokenizer.h"

namespace shoal::text {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// 100 tokens, of which the last three are "a", "b" and "ab".
Vocabulary hundred_tokens() {
  Vocabulary vocabulary;
  vocabulary.model = "gpt2";
  vocabulary.pre = "gpt-2";
  for (int id = 0; id < 97; ++id) vocabulary.tokens.push_back("t" + std::to_string(id));
  for (const char* text : {"a", "b", "ab"}) vocabulary.tokens.emplace_back(text);
  vocabulary.merges = {"a b"};
  return vocabulary;
}

std::string refusal(const Vocabulary& vocabulary) {
  auto tokenizer = Tokenizer::from_vocabulary(vocabulary);
  EXPECT_FALSE(tokenizer.is_ok());
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kRequest);
  return tokenizer.status().message();
}

TEST(Vocabulary, OfHundredTokensIsAccepted) {
  auto tokenizer = Tokenizer::from_vocabulary(hundred_tokens());
  ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
  EXPECT_EQ((*tokenizer)->vocabulary_size(), 100);
  EXPECT_EQ(*(*tokenizer)->encode("ab"), std::vector<int32_t>{99});
}

TEST(TextCases, C08_ArraysOfTheWrongLengthAreRefusedByTheirKey) {
  Vocabulary vocabulary = hundred_tokens();
  vocabulary.scores.assign(99, 0.0F);
  EXPECT_THAT(refusal(vocabulary),
              AllOf(HasSubstr("tokenizer.ggml.scores"), HasSubstr("99"), HasSubstr("100")));
  vocabulary = hundred_tokens();
  vocabulary.types.assign(101, 1);
  EXPECT_THAT(refusal(vocabulary),
              AllOf(HasSubstr("tokenizer.ggml.token_type"), HasSubstr("101"), HasSubstr("100")));
  vocabulary = hundred_tokens();
  vocabulary.tokens.clear();
  EXPECT_THAT(refusal(vocabulary), HasSubstr("tokenizer.ggml.tokens"));
}

TEST(TextCases, C08_IdsOutsideOfTheVocabularyAreRefusedByTheirKey) {
  Vocabulary vocabulary = hundred_tokens();
  vocabulary.bos = 100000;
  EXPECT_THAT(refusal(vocabulary),
              AllOf(HasSubstr("tokenizer.ggml.bos_token_id"), HasSubstr("100000")));
  vocabulary = hundred_tokens();
  vocabulary.eos = -1;
  EXPECT_THAT(refusal(vocabulary),
              AllOf(HasSubstr("tokenizer.ggml.eos_token_id"), HasSubstr("-1")));
  for (auto field : {&Vocabulary::eot, &Vocabulary::eom, &Vocabulary::unk, &Vocabulary::pad}) {
    vocabulary = hundred_tokens();
    vocabulary.*field = 100;
    EXPECT_THAT(refusal(vocabulary), HasSubstr("_token_id is 100, expected 0 to 99"));
  }
}

TEST(TextCases, C08_BrokenMergesAreRefused) {
  Vocabulary vocabulary = hundred_tokens();
  vocabulary.merges.clear();
  EXPECT_THAT(refusal(vocabulary), HasSubstr("tokenizer.ggml.merges"));
  for (const char* merge : {"ab", "a ", "", " "}) {
    vocabulary = hundred_tokens();
    vocabulary.merges.emplace_back(merge);
    EXPECT_THAT(refusal(vocabulary), HasSubstr("tokenizer.ggml.merges[1]")) << merge;
  }
  vocabulary = hundred_tokens();
  vocabulary.merges.emplace_back("b a");
  EXPECT_THAT(refusal(vocabulary),
              AllOf(HasSubstr("tokenizer.ggml.merges[1]"), HasSubstr("\"ba\"")));
}

TEST(TextCases, C08_OtherValuesThatMeanNothingAreRefused) {
  Vocabulary vocabulary = hundred_tokens();
  vocabulary.types.assign(100, 1);
  vocabulary.types[7] = 9;
  EXPECT_THAT(refusal(vocabulary), HasSubstr("tokenizer.ggml.token_type[7] is 9"));
  vocabulary = hundred_tokens();
  vocabulary.scores.assign(100, 0.0F);
  vocabulary.scores[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(refusal(vocabulary), HasSubstr("tokenizer.ggml.scores[3]"));
  vocabulary = hundred_tokens();
  vocabulary.tokens[5] = "\xC3";
  EXPECT_THAT(refusal(vocabulary),
              AllOf(HasSubstr("tokenizer.ggml.tokens[5]"), HasSubstr("UTF-8")));
  vocabulary = hundred_tokens();
  vocabulary.model = "llama";
  EXPECT_THAT(refusal(vocabulary), HasSubstr("tokenizer.ggml.scores"));
  vocabulary.scores.assign(100, 0.0F);
  vocabulary.types.assign(100, 1);
  vocabulary.types[4] = static_cast<int32_t>(TokenKind::kByte);
  EXPECT_THAT(refusal(vocabulary), HasSubstr("tokenizer.ggml.token_type[4]"));
}

TEST(Vocabulary, OfAnUnknownKindIsRefusedAndTheKnownOnesAreNamed) {
  Vocabulary vocabulary = hundred_tokens();
  vocabulary.pre = "brand-new";
  EXPECT_THAT(refusal(vocabulary),
              AllOf(HasSubstr("tokenizer.ggml.pre"), HasSubstr("brand-new"), HasSubstr("qwen2")));
  vocabulary = hundred_tokens();
  vocabulary.model = "t5";
  EXPECT_THAT(refusal(vocabulary), AllOf(HasSubstr("tokenizer.ggml.model"), HasSubstr("\"t5\"")));
}

TEST(Vocabulary, WithoutAPreTokenizerIsSplitAsGpt2) {
  Vocabulary vocabulary = hundred_tokens();
  vocabulary.pre.clear();
  EXPECT_TRUE(Tokenizer::from_vocabulary(vocabulary).is_ok());
}

TEST(TextCases, C09_OfTokensWithOneTextTheLowestIdIsEncodedAndAllAreDecoded) {
  for (const char* model : {"gpt2", "llama"}) {
    Vocabulary vocabulary;
    vocabulary.model = model;
    vocabulary.pre = "gpt-2";
    vocabulary.tokens = {"<unk>", "a", "b", "▁", "c", "d", "e", "ab", "f", "ab"};
    vocabulary.scores.assign(10, -1.0F);
    vocabulary.merges = {"a b"};
    vocabulary.add_bos = false;
    vocabulary.add_space_prefix = false;
    auto tokenizer = Tokenizer::from_vocabulary(vocabulary);
    ASSERT_TRUE(tokenizer.is_ok()) << tokenizer.status().message();
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(*(*tokenizer)->encode("ab"), std::vector<int32_t>{7}) << model;
    }
    const int32_t both[] = {7, 9};
    EXPECT_EQ(*(*tokenizer)->decode(both), "abab") << model;
  }
}

}  // namespace
}  // namespace shoal::text

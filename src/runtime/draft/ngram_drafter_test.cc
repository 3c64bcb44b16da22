#include "runtime/draft/ngram_drafter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace shoal::runtime {
namespace {

using ::testing::ElementsAre;
using Tokens = std::vector<TokenId>;

Tokens drafted(const NgramDrafter& drafter, const Tokens& tokens, size_t count) {
  Tokens out;
  drafter.draft(tokens, count, &out);
  return out;
}

// The prompt, then the other tokens one by one.
NgramDrafter drafter_of(const Tokens& tokens, size_t prompt) {
  NgramDrafter drafter(std::span(tokens).first(prompt), tokens.size());
  for (size_t end = prompt + 1; end <= tokens.size(); ++end) {
    drafter.append(std::span(tokens).first(end));
  }
  return drafter;
}

TEST(NgramDrafter, DraftsWhatFollowedTheSameTokensBefore) {
  const Tokens tokens = {7, 1, 2, 3, 4, 5, 6, 9, 9, 1, 2};
  for (const size_t prompt : {tokens.size(), size_t{5}, size_t{1}}) {
    const NgramDrafter drafter = drafter_of(tokens, prompt);
    EXPECT_EQ(drafter.match_length(), 2U);
    EXPECT_THAT(drafted(drafter, tokens, 4), ElementsAre(3, 4, 5, 6));
  }
}

TEST(NgramDrafter, HasNoDraftWhereNothingRepeats) {
  EXPECT_EQ(drafter_of({1}, 1).match_length(), 0U);
  EXPECT_EQ(drafter_of({1, 2, 3, 4, 5, 6, 7}, 3).match_length(), 0U);
  EXPECT_EQ(drafter_of({1, 2, 3, 4, 5, 6, 7}, 3).likelihood(0), 0);
  EXPECT_EQ(drafter_of({1, 2, 3, 1}, 1).match_length(), 0U) << "one token says nothing";
}

TEST(NgramDrafter, PrefersTheLongerMatchAndAmongEqualOnesTheLater) {
  EXPECT_THAT(drafted(drafter_of({1, 2, 50, 1, 2, 60, 1, 2}, 1), {1, 2, 50, 1, 2, 60, 1, 2}, 1),
              ElementsAre(60));
  const Tokens longer = {5, 6, 1, 2, 50, 8, 1, 2, 60, 5, 6, 1, 2};
  const NgramDrafter drafter = drafter_of(longer, longer.size());
  EXPECT_EQ(drafter.match_length(), 4U);
  EXPECT_THAT(drafted(drafter, longer, 1), ElementsAre(50));
}

TEST(NgramDrafter, FollowsAMatchAsLongAsItIsRight) {
  Tokens tokens(40);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i % 20);
  NgramDrafter drafter(std::span(tokens).first(22), tokens.size());
  for (size_t end = 23; end < tokens.size(); ++end) {
    drafter.append(std::span(tokens).first(end));
    EXPECT_EQ(drafter.match_length(), end - 20);
    EXPECT_EQ(drafted(drafter, Tokens(tokens.begin(), tokens.begin() + end), 1)[0], tokens[end]);
  }
  tokens.back() = 99;
  drafter.append(tokens);
  EXPECT_EQ(drafter.match_length(), 0U);
}

TEST(NgramDrafter, GoesOnWithItsOwnBeginningAtTheEnd) {
  const Tokens tokens = {8, 1, 2, 3, 1, 2, 3};
  EXPECT_THAT(drafted(drafter_of(tokens, 7), tokens, 8), ElementsAre(1, 2, 3, 1, 2, 3, 1, 2));
}

TEST(NgramDrafter, LikelihoodIsWhatCameTrue) {
  Tokens tokens;
  for (TokenId i = 0; i < 30; ++i) tokens.push_back(i);
  NgramDrafter drafter(tokens, 4000);
  const auto append = [&](TokenId id) {
    tokens.push_back(id);
    drafter.append(tokens);
  };
  append(0);
  append(1);
  const double at_first = drafter.likelihood(0);
  for (TokenId next = 100; next < 140; ++next) {  // never what was drafted
    append(0);
    append(1);
    ASSERT_GE(drafter.match_length(), 2U);
    append(next);
  }
  append(0);
  append(1);
  EXPECT_LT(drafter.likelihood(0), at_first / 10);
  for (int round = 0; round < 40; ++round) {
    for (TokenId id = 0; id < 30; ++id) append(id);
  }
  EXPECT_EQ(drafter.match_length(), NgramDrafter::kMatchMax);
  EXPECT_GT(drafter.likelihood(0), 0.99);
}

// Whatever the tokens: the draft is what followed an earlier place before which the same tokens
// stood, as many as it says; and where five tokens stood before, there is one, but for a few whose
// slot something else has taken.
TEST(NgramDrafter, EveryDraftHasItsPlace) {
  std::mt19937 random(5);
  size_t repeated = 0;
  size_t found = 0;
  for (int round = 0; round < 60; ++round) {
    const size_t count = 2 + random() % 300;
    const size_t kinds = 2 + random() % (round % 2 == 0 ? 3 : 40);
    Tokens tokens(count);
    for (TokenId& id : tokens) id = static_cast<TokenId>(random() % kinds);
    const size_t prompt = 1 + random() % count;
    NgramDrafter drafter(std::span(tokens).first(prompt), NgramDrafter::kSlotsMax);
    for (size_t end = prompt + 1; end <= count; ++end) {
      const auto known = std::span(tokens).first(end);
      drafter.append(known);
      const size_t length = drafter.match_length();
      size_t longest = 0;
      bool has_place = false;
      for (size_t place = 1; place < end; ++place) {
        size_t common = 0;
        while (common < place && tokens[place - 1 - common] == tokens[end - 1 - common]) ++common;
        longest = std::max(longest, common);
        if (length == 0 || common < length) continue;
        Tokens expected(tokens.begin() + static_cast<ptrdiff_t>(place),
                        tokens.begin() + static_cast<ptrdiff_t>(end));
        expected.resize(std::min<size_t>(expected.size(), 8));
        Tokens out;
        drafter.draft(known, expected.size(), &out);
        has_place = has_place || out == expected;
      }
      ASSERT_EQ(has_place, length != 0) << "round " << round << ", end " << end;
      ASSERT_NE(length, 1U);
      ASSERT_LE(length, longest);
      if (longest >= 5) ++repeated;
      if (longest >= 5 && length >= 5) ++found;
    }
  }
  EXPECT_GT(repeated, 500U);
  EXPECT_GT(found, repeated - repeated / 50);
}

TEST(NgramDrafter, MemoryIsBounded) {
  EXPECT_LE(NgramDrafter(Tokens{1}, 1).slots(), 64U);
  EXPECT_EQ(NgramDrafter(Tokens{1}, size_t{1} << 40).slots(), NgramDrafter::kSlotsMax);
  Tokens tokens(200000);
  std::mt19937 random(2);
  for (TokenId& id : tokens) id = static_cast<TokenId>(random() % 50000);
  NgramDrafter drafter(tokens, tokens.size());
  for (size_t i = 0; i < 10; ++i) {  // of late ones it knows all
    tokens.push_back(tokens[tokens.size() - 1000]);
    drafter.append(tokens);
  }
  EXPECT_GE(drafter.match_length(), 5U);
}

}  // namespace
}  // namespace shoal::runtime

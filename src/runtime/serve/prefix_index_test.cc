#include "runtime/serve/prefix_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace shoal::runtime {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr size_t kBlock = 16;

std::vector<TokenId> run_of(TokenId first, size_t count) {
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = first + static_cast<TokenId>(i);
  return tokens;
}

std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// Enters a conversation as a request that then ends would, in these blocks.
void enter(PrefixIndex* index, const std::vector<TokenId>& tokens,
           const std::vector<BlockId>& blocks) {
  std::optional<PrefixIndex::Ref> parent;
  std::vector<PrefixIndex::Ref> pinned;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const size_t begin = i * kBlock;
    const size_t count = std::min(kBlock, tokens.size() - begin);
    const auto entry = index->insert(parent, std::span(tokens).subspan(begin, count), blocks[i]);
    ASSERT_TRUE(entry.has_value());
    if (entry->is_new) pinned.push_back(entry->ref);
    parent = entry->ref;
  }
  (void)index->keep(blocks);
  for (const PrefixIndex::Ref& ref : pinned) index->unpin(ref);
}

std::vector<BlockId> blocks_of(const PrefixIndex::Match& match) {
  std::vector<BlockId> blocks;
  blocks.reserve(match.path.size());
  for (const PrefixIndex::Ref& ref : match.path) blocks.push_back(ref.block);
  return blocks;
}

TEST(PrefixIndex, FindsTheLongestBeginningWithItsLastBlockInPart) {
  PrefixIndex index(kBlock, 10);
  EXPECT_EQ(index.find(run_of(0, 50)).tokens, 0U);
  enter(&index, run_of(0, 40), {3, 5, 7});
  enter(&index, run_of(0, 16) + run_of(100, 16), {3, 6});

  PrefixIndex::Match match = index.find(run_of(0, 60));
  EXPECT_EQ(match.tokens, 40U);
  EXPECT_THAT(blocks_of(match), ElementsAre(3, 5, 7));
  match = index.find(run_of(0, 26) + run_of(900, 30));
  EXPECT_EQ(match.tokens, 26U);
  EXPECT_THAT(blocks_of(match), ElementsAre(3, 5));
  match = index.find(run_of(0, 16) + run_of(100, 40));
  EXPECT_EQ(match.tokens, 32U);
  EXPECT_THAT(blocks_of(match), ElementsAre(3, 6));
  match = index.find(run_of(0, 16 + PrefixIndex::kPartMin - 1) + run_of(900, 9));
  EXPECT_EQ(match.tokens, 16U) << "the part is too short to be worth a copy";
  EXPECT_EQ(index.find(run_of(1, 40)).tokens, 0U);
  EXPECT_EQ(index.find({}).tokens, 0U);
}

TEST(PrefixIndex, EqualTokensHaveOneEntry) {
  PrefixIndex index(kBlock, 10);
  enter(&index, run_of(0, 32), {0, 1});
  const auto first = index.insert(std::nullopt, run_of(0, 16), 4);
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(first->is_new);
  EXPECT_EQ(first->ref.block, 0U);
  const auto part = index.insert(first->ref, run_of(16, 9), 5);
  ASSERT_TRUE(part.has_value());
  EXPECT_FALSE(part->is_new) << "a whole block begins with them";
  EXPECT_THAT(index.keep(std::vector<BlockId>{4, 5}), IsEmpty()) << "so these are not to be kept";
}

TEST(PrefixIndex, EvictsTheLeastRecentlyUsedFromTheEndsOfPaths) {
  PrefixIndex index(kBlock, 10);
  enter(&index, run_of(0, 48), {0, 1, 2});
  enter(&index, run_of(100, 32), {3, 4});
  EXPECT_EQ(index.idle_blocks(), 5U);
  // The first conversation is used again.
  for (const PrefixIndex::Ref& ref : index.find(run_of(0, 48)).path) {
    index.pin(ref);
    index.unpin(ref);
  }
  EXPECT_THAT(index.evict(1), ElementsAre(4));
  EXPECT_THAT(index.evict(2), ElementsAre(3, 2));
  EXPECT_EQ(index.find(run_of(0, 48)).tokens, 32U);
  EXPECT_THAT(index.evict(9), ElementsAre(1, 0));
  EXPECT_EQ(index.idle_blocks(), 0U);
  EXPECT_EQ(index.find(run_of(0, 48)).tokens, 0U);
}

TEST(PrefixIndex, WhatIsPinnedStays) {
  PrefixIndex index(kBlock, 10);
  enter(&index, run_of(0, 48), {0, 1, 2});
  const auto path = index.find(run_of(0, 32)).path;
  for (const PrefixIndex::Ref& ref : path) index.pin(ref);
  EXPECT_EQ(index.idle_blocks(), 1U);
  EXPECT_THAT(index.evict(3), ElementsAre(2));
  EXPECT_EQ(index.find(run_of(0, 48)).tokens, 32U);
  for (const PrefixIndex::Ref& ref : path) index.unpin(ref);
  EXPECT_EQ(index.idle_blocks(), 2U);
}

TEST(PrefixIndex, APartThatALongerOneContainsGoesFirst) {
  PrefixIndex index(kBlock, 10);
  enter(&index, run_of(500, 16), {8});
  enter(&index, run_of(0, 12), {0});
  enter(&index, run_of(0, 16), {1});
  EXPECT_THAT(index.evict(1), ElementsAre(0));
}

// A request computed tokens again in a block of its own, and went on in a pinned one.
TEST(PrefixIndex, AnIdleEntryBeforeAPinnedOneCanBeFreedAndLosesIt) {
  PrefixIndex index(kBlock, 10);
  enter(&index, run_of(0, 16), {0});
  const auto same = index.insert(std::nullopt, run_of(0, 16), 5);
  ASSERT_TRUE(same.has_value() && !same->is_new);
  const auto next = index.insert(same->ref, run_of(16, 16), 6);
  ASSERT_TRUE(next.has_value() && next->is_new);
  EXPECT_THAT(index.evict(1), ElementsAre(0)) << "the pinned one was not kept: nothing to drop";
  EXPECT_EQ(index.find(run_of(0, 32)).tokens, 0U);
  EXPECT_FALSE(index.insert(next->ref, run_of(32, 16), 7).has_value()) << "its path is lost";
  index.unpin(next->ref);
  EXPECT_EQ(index.idle_blocks(), 0U);
  // The block's number comes back with other tokens; the old reference does not touch it.
  const auto other = index.insert(std::nullopt, run_of(700, 16), 6);
  ASSERT_TRUE(other.has_value() && other->is_new);
  index.unpin(next->ref);
  EXPECT_EQ(index.pins(other->ref), 1U);
}

// Against a plain list of the conversations that were entered.
TEST(PrefixIndex, NeverFindsMoreThanWasEnteredAndNothingThatWasDropped) {
  constexpr size_t kBlocks = 12;
  PrefixIndex index(kBlock, kBlocks);
  std::map<BlockId, std::vector<TokenId>> held;  // all tokens up to the block's last
  std::mt19937 random(4);
  size_t found = 0;
  for (int round = 0; round < 4000; ++round) {
    // Few beginnings, so that many are met again.
    std::vector<TokenId> tokens;
    for (size_t block = 0; block <= random() % 3; ++block) {
      tokens = tokens + run_of(static_cast<TokenId>(random() % 3) * 100, kBlock);
    }
    tokens.resize(tokens.size() - random() % 5);
    const PrefixIndex::Match match = index.find(tokens);
    size_t longest = 0;
    for (const auto& [block, of] : held) {
      const auto differs = std::mismatch(of.begin(), of.end(), tokens.begin(), tokens.end());
      longest = std::max(longest, static_cast<size_t>(differs.first - of.begin()));
    }
    if (longest % kBlock < PrefixIndex::kPartMin) longest -= longest % kBlock;
    ASSERT_EQ(match.tokens, longest);
    for (size_t i = 0; i < match.path.size(); ++i) {
      const std::vector<TokenId>& of = held.at(match.path[i].block);
      const size_t end = std::min(tokens.size(), std::min((i + 1) * kBlock, match.tokens));
      ASSERT_TRUE(
          std::equal(tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(end), of.begin()));
    }
    found += match.tokens;

    std::vector<BlockId> blocks;
    blocks.reserve(kBlocks);
    const size_t whole = match.tokens / kBlock;
    for (size_t i = 0; i < whole; ++i) blocks.push_back(match.path[i].block);
    for (const PrefixIndex::Ref& ref : match.path) index.pin(ref);
    const size_t needed = (tokens.size() + kBlock - 1) / kBlock - whole;
    if (kBlocks - held.size() < needed) {
      for (const BlockId block : index.evict(needed - (kBlocks - held.size()))) {
        held.erase(block);
      }
    }
    for (BlockId block = 0; block < kBlocks && blocks.size() < whole + needed; ++block) {
      if (!held.contains(block)) blocks.push_back(block);
    }
    if (blocks.size() == whole + needed) {
      enter(&index, tokens, blocks);
      for (size_t i = whole; i < blocks.size(); ++i) {
        const auto again = index.find(tokens);
        const bool is_entered = i < again.path.size() && again.path[i].block == blocks[i];
        if (!is_entered) continue;
        const size_t end = std::min(tokens.size(), (i + 1) * kBlock);
        held[blocks[i]] = {tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(end)};
      }
    }
    for (const PrefixIndex::Ref& ref : match.path) index.unpin(ref);
    ASSERT_EQ(index.idle_blocks(), held.size());
  }
  EXPECT_GT(found, 10000U);
}

}  // namespace
}  // namespace shoal::runtime

#include "runtime/rank/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace shoal::runtime {
namespace {

using ::testing::HasSubstr;

KvCache make(size_t positions, uint32_t sessions) {
  KvCacheOptions options;
  tensor::KvLayout layout;
  layout.kv_heads = 2;
  layout.head_dim = 16;
  layout.page_tokens = 16;
  options.layers = {layout, layout};
  options.layers[1].kv_heads = 1;
  options.positions = positions;
  options.sessions_max = sessions;
  auto cache = KvCache::create(std::move(options));
  CHECK_MSG(cache.is_ok(), cache.status().message().c_str());
  return std::move(cache).value();
}

TEST(KvCache, PagesComeAsASessionGrowsAndGoAsItShrinks) {
  KvCache cache = make(64, 2);
  ASSERT_TRUE(cache.open(0).is_ok());
  EXPECT_EQ(cache.pages(0, 0).size(), 0U);
  ASSERT_TRUE(cache.extend(0, 16).is_ok());
  EXPECT_EQ(cache.pages(0, 0).size(), 1U);
  ASSERT_TRUE(cache.extend(0, 1).is_ok());
  EXPECT_EQ(cache.pages(0, 0).size(), 2U);
  EXPECT_EQ(cache.pages(0, 1).size(), 2U);
  EXPECT_EQ(cache.blocks_free(), 2U);
  EXPECT_EQ(cache.blocks_needed(0, 15), 0U);
  EXPECT_EQ(cache.blocks_needed(0, 16), 1U);
  ASSERT_TRUE(cache.truncate(0, 16).is_ok());
  EXPECT_EQ(cache.pages(0, 0).size(), 1U);
  EXPECT_EQ(cache.length(0), 16U);
  ASSERT_TRUE(cache.close(0).is_ok());
  EXPECT_EQ(cache.blocks_free(), 4U);
}

TEST(KvCache, WithoutRoomItSaysSoAndChangesNothing) {
  KvCache cache = make(40, 2);  // three blocks of 16
  ASSERT_TRUE(cache.open(0).is_ok());
  ASSERT_TRUE(cache.open(1).is_ok());
  EXPECT_EQ(cache.room(0), 40U) << "the context, though the blocks hold 48";
  ASSERT_TRUE(cache.extend(0, 17).is_ok());
  EXPECT_EQ(cache.room(1), 16U);
  const Status full = cache.extend(1, 17);
  EXPECT_EQ(full.code(), StatusCode::kRequest);
  EXPECT_THAT(full.message(), HasSubstr("context full"));
  EXPECT_EQ(cache.length(1), 0U);
  EXPECT_EQ(cache.blocks_free(), 1U);
  EXPECT_TRUE(cache.extend(1, 16).is_ok());
  EXPECT_EQ(cache.extend(1, ~size_t{0}).code(), StatusCode::kRequest);
}

TEST(KvCache, SenselessCallsAreRefused) {
  KvCache cache = make(64, 1);
  EXPECT_FALSE(cache.open(1).is_ok());
  EXPECT_FALSE(cache.close(0).is_ok());
  EXPECT_FALSE(cache.extend(0, 1).is_ok());
  ASSERT_TRUE(cache.open(0).is_ok());
  EXPECT_FALSE(cache.open(0).is_ok());
  EXPECT_FALSE(cache.truncate(0, 1).is_ok());
}

// Everything that a session's pages hold, and what a test writes there.
uint8_t mark_at(const KvCache& cache, uint32_t session, size_t position) {
  return static_cast<uint8_t>(*(cache.pages(session, 0)[position / 16] + position % 16));
}
void mark(const KvCache& cache, uint32_t session, size_t position, uint8_t value) {
  for (size_t layer = 0; layer < 2; ++layer) {
    *(cache.pages(session, layer)[position / 16] + position % 16) = std::byte{value};
  }
}

TEST(KvCache, AKeptPrefixIsSharedAndCopiedBeforeItIsWrittenTo) {
  KvCache cache = make(96, 3);
  ASSERT_TRUE(cache.open(0).is_ok());
  ASSERT_TRUE(cache.extend(0, 24).is_ok());
  for (size_t i = 0; i < 24; ++i) mark(cache, 0, i, static_cast<uint8_t>(i + 1));
  const std::vector<BlockId> blocks(cache.blocks(0).begin(), cache.blocks(0).end());
  ASSERT_TRUE(cache.close(0, blocks).is_ok());
  EXPECT_EQ(cache.blocks_free(), 4U);

  // 20 positions: one block whole, four positions of the next.
  ASSERT_TRUE(cache.open(1, {blocks, 20}).is_ok());
  ASSERT_TRUE(cache.open(2, {blocks, 20}).is_ok());
  EXPECT_EQ(cache.blocks_free(), 4U);
  EXPECT_EQ(cache.pages(1, 0)[1], cache.pages(2, 0)[1]);
  EXPECT_EQ(cache.blocks_needed(1, 1), 1U) << "the copy";
  EXPECT_EQ(cache.blocks_needed(1, 13), 2U);
  EXPECT_EQ(cache.room(1), 3U * 16 + 12);
  ASSERT_TRUE(cache.extend(1, 1).is_ok());
  mark(cache, 1, 20, 99);
  EXPECT_EQ(cache.pages(1, 0)[0], cache.pages(2, 0)[0]);
  EXPECT_NE(cache.pages(1, 0)[1], cache.pages(2, 0)[1]);
  for (size_t i = 0; i < 20; ++i) EXPECT_EQ(mark_at(cache, 1, i), i + 1);
  EXPECT_EQ(mark_at(cache, 2, 20), 21) << "the kept block is as it was";
  EXPECT_EQ(cache.blocks_needed(1, 1), 0U) << "its own by now";

  ASSERT_TRUE(cache.drop(blocks).is_ok());
  EXPECT_EQ(cache.blocks_free(), 3U) << "session 2 still holds both";
  EXPECT_EQ(cache.blocks_needed(2, 1), 0U) << "and is the last to hold the second";
  ASSERT_TRUE(cache.close(2).is_ok());
  EXPECT_EQ(cache.blocks_free(), 4U);
  ASSERT_TRUE(cache.close(1).is_ok());
  EXPECT_EQ(cache.blocks_free(), 6U);
}

TEST(KvCache, WithoutAFreeBlockASharedOneCannotBeWrittenTo) {
  KvCache cache = make(32, 2);
  ASSERT_TRUE(cache.open(0).is_ok());
  ASSERT_TRUE(cache.extend(0, 20).is_ok());
  const std::vector<BlockId> blocks(cache.blocks(0).begin(), cache.blocks(0).end());
  ASSERT_TRUE(cache.close(0, blocks).is_ok());
  ASSERT_TRUE(cache.open(0, {blocks, 20}).is_ok());
  EXPECT_EQ(cache.room(0), 0U);
  EXPECT_FALSE(cache.extend(0, 1).is_ok());
  ASSERT_TRUE(cache.drop(blocks).is_ok());
  EXPECT_EQ(cache.room(0), 12U);
  EXPECT_TRUE(cache.extend(0, 12).is_ok());
}

TEST(KvCache, SenselessSharingIsRefusedAndChangesNothing) {
  KvCache cache = make(64, 2);
  const std::vector<BlockId> first{0};
  const std::vector<BlockId> twice{0, 0};
  const std::vector<BlockId> outside{4};
  EXPECT_FALSE(cache.open(0, {first, 16}).is_ok()) << "nobody holds it";
  EXPECT_FALSE(cache.open(0, {outside, 16}).is_ok());
  EXPECT_FALSE(cache.drop(first).is_ok());
  ASSERT_TRUE(cache.open(0).is_ok());
  ASSERT_TRUE(cache.extend(0, 20).is_ok());
  EXPECT_FALSE(cache.open(1, {first, 17}).is_ok()) << "too few blocks";
  EXPECT_FALSE(cache.open(1, {{}, 1}).is_ok());
  EXPECT_FALSE(cache.close(0, outside).is_ok());
  EXPECT_FALSE(cache.close(0, twice).is_ok());
  ASSERT_TRUE(cache.is_open(0));
  ASSERT_TRUE(cache.close(0, first).is_ok());
  EXPECT_FALSE(cache.drop(twice).is_ok());
  EXPECT_FALSE(cache.drop(std::vector<BlockId>{0, 1}).is_ok());
  EXPECT_TRUE(cache.drop(first).is_ok()) << "the refused ones left it kept";
  EXPECT_EQ(cache.blocks_free(), 4U);
}

// Whatever sessions do, none writes where another, or the cache, can see it.
TEST(KvCache, SharingNeverChangesWhatSomebodyHolds) {
  KvCache cache = make(16 * 12, 4);
  struct Kept {
    std::vector<BlockId> blocks;
    std::vector<uint8_t> marks;
  };
  std::vector<std::vector<uint8_t>> marks(4);  // [session][position]
  std::vector<Kept> kept;
  std::mt19937 random(5);
  int shared = 0;
  for (int round = 0; round < 5000; ++round) {
    const uint32_t session = random() % 4;
    if (!cache.is_open(session)) {
      marks[session].clear();
      KvPrefix prefix;
      if (!kept.empty()) {
        const Kept& from = kept[random() % kept.size()];
        prefix.length = random() % (from.marks.size() + 1);
        prefix.blocks = std::span(from.blocks).first((prefix.length + 15) / 16);
        marks[session].assign(from.marks.begin(),
                              from.marks.begin() + static_cast<ptrdiff_t>(prefix.length));
        ++shared;
      }
      ASSERT_TRUE(cache.open(session, prefix).is_ok());
    } else if (random() % 10 == 0) {
      Kept now{{cache.blocks(session).begin(), cache.blocks(session).end()}, marks[session]};
      const bool is_new = std::none_of(kept.begin(), kept.end(), [&](const Kept& other) {
        return std::any_of(other.blocks.begin(), other.blocks.end(), [&](BlockId block) {
          return std::find(now.blocks.begin(), now.blocks.end(), block) != now.blocks.end();
        });
      });
      ASSERT_TRUE(cache.close(session, is_new ? now.blocks : std::vector<BlockId>()).is_ok());
      if (is_new && !now.blocks.empty()) kept.push_back(std::move(now));
    } else if (random() % 10 == 0 && !kept.empty()) {
      ASSERT_TRUE(cache.drop(kept.front().blocks).is_ok());
      kept.erase(kept.begin());
    } else {
      const size_t tokens = random() % 24;
      if (tokens > cache.room(session)) continue;
      ASSERT_TRUE(cache.extend(session, tokens).is_ok());
      for (size_t i = 0; i < tokens; ++i) {
        mark(cache, session, marks[session].size(), static_cast<uint8_t>(random()));
        marks[session].push_back(mark_at(cache, session, marks[session].size()));
      }
    }
    for (uint32_t each = 0; each < 4; ++each) {
      if (!cache.is_open(each)) continue;
      ASSERT_EQ(cache.length(each), marks[each].size());
      for (size_t i = 0; i < marks[each].size(); ++i) {
        ASSERT_EQ(mark_at(cache, each, i), marks[each][i]);
      }
    }
  }
  EXPECT_GT(shared, 100);
  for (uint32_t each = 0; each < 4; ++each) {
    if (cache.is_open(each)) ASSERT_TRUE(cache.close(each).is_ok());
  }
  for (const Kept& each : kept) ASSERT_TRUE(cache.drop(each.blocks).is_ok());
  EXPECT_EQ(cache.blocks_free(), 12U);
}

TEST(KvCache, NoTwoSessionsEverShareAPage) {
  KvCache cache = make(16 * 20, 5);
  std::mt19937 random(2);
  for (int round = 0; round < 3000; ++round) {
    const uint32_t session = random() % 5;
    if (!cache.is_open(session)) {
      ASSERT_TRUE(cache.open(session).is_ok());
    } else if (random() % 8 == 0) {
      ASSERT_TRUE(cache.close(session).is_ok());
    } else if (random() % 3 == 0) {
      ASSERT_TRUE(cache.truncate(session, random() % (cache.length(session) + 1)).is_ok());
    } else {
      const size_t tokens = random() % 70;
      const bool fits = tokens <= cache.room(session);
      ASSERT_EQ(cache.extend(session, tokens).is_ok(), fits);
    }
    std::set<std::byte*> pages;
    size_t count = 0;
    for (uint32_t each = 0; each < 5; ++each) {
      if (!cache.is_open(each)) continue;
      ASSERT_EQ(cache.pages(each, 0).size(), (cache.length(each) + 15) / 16);
      for (size_t layer = 0; layer < 2; ++layer) {
        for (std::byte* page : cache.pages(each, layer)) {
          pages.insert(page);
          ++count;
        }
      }
    }
    ASSERT_EQ(pages.size(), count);
    ASSERT_EQ(count / 2 + cache.blocks_free(), 20U);
  }
}

}  // namespace
}  // namespace shoal::runtime

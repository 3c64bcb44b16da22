#include "runtime/rank/kv_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

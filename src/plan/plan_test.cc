#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace shoal::plan {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct World {
  model::ModelConfig config;
  WeightBytes weights;
};

// The shape of SmolLM2-135M with round byte counts: one byte per element.
World smol(uint64_t ffn_block = 32) {
  World world;
  world.config.display_name = "smol";
  world.config.hidden = 576;
  world.config.vocab = 49152;
  world.config.context = 8192;
  model::LayerSpec spec;
  spec.heads = 9;
  spec.kv_heads = 3;
  spec.head_dim = spec.value_head_dim = 64;
  spec.ffn = 1536;
  LayerBytes bytes;
  bytes.q = bytes.o = 576 * 576;
  bytes.kv = uint64_t{2} * 192 * 576;
  bytes.ffn = uint64_t{3} * 1536 * 576;
  bytes.ffn_grain = ffn_block;
  bytes.replicated = 2 * 576 * 4;
  world.config.layers.assign(30, spec);
  world.weights.layers.assign(30, bytes);
  world.weights.output = uint64_t{49152} * 576;
  world.weights.replicated = 576 * 4;
  return world;
}

Result<Plan> plan_of(const World& world, uint32_t ranks, std::vector<double> weights = {},
                     uint32_t context = 0) {
  PlanRequest request;
  request.ranks = ranks;
  request.weights = std::move(weights);
  request.context = context;
  return make_plan(world.config, world.weights, request);
}

Plan must(Result<Plan> plan) {
  CHECK_MSG(plan.is_ok(), plan.status().message().c_str());
  return std::move(plan).value();
}

TEST(Plan, OneRankHoldsEverythingOnce) {
  const World world = smol();
  const Plan plan = must(plan_of(world, 1));
  const RankPlan& rank = plan.ranks.front();
  EXPECT_EQ(rank.layers.front().q_heads, (Range{0, 9}));
  EXPECT_EQ(rank.layers.front().kv_heads, (Range{0, 3}));
  EXPECT_EQ(rank.layers.front().ffn, (Range{0, 1536}));
  EXPECT_EQ(rank.vocabulary, (Range{0, 49152}));
  const LayerBytes& layer = world.weights.layers.front();
  EXPECT_EQ(plan.weight_bytes, 30 * (layer.q + layer.kv + layer.o + layer.ffn + layer.replicated) +
                                   world.weights.output + world.weights.replicated);
  // 30 layers, 3 KV heads, keys and values of 64 halves.
  EXPECT_EQ(plan.kv_bytes_per_token, 30U * 3 * 2 * 64 * 2);
  EXPECT_EQ(plan.kv_bytes, plan.kv_bytes_per_token * 8192);
}

TEST(Plan, TwoRanksOfTheDemoModelAreUnevenInAttentionOnly) {
  const Plan plan = must(plan_of(smol(), 2));
  EXPECT_FALSE(plan.kv_heads_replicated);
  EXPECT_EQ(plan.ranks[0].layers[7].q_heads, (Range{0, 6}));
  EXPECT_EQ(plan.ranks[0].layers[7].kv_heads, (Range{0, 2}));
  EXPECT_EQ(plan.ranks[1].layers[7].q_heads, (Range{6, 9}));
  EXPECT_EQ(plan.ranks[1].layers[7].kv_heads, (Range{2, 3}));
  EXPECT_EQ(plan.ranks[0].layers[7].ffn, (Range{0, 768}));
  EXPECT_EQ(plan.ranks[1].layers[7].ffn, (Range{768, 1536}));
}

TEST(Plan, WithMoreRanksThanKvHeadsQueryHeadsAreDealtOutAndKvHeadsReplicated) {
  const Plan plan = must(plan_of(smol(), 4));
  EXPECT_TRUE(plan.kv_heads_replicated);
  EXPECT_EQ(plan.ranks[0].layers[0].q_heads, (Range{0, 3}));
  EXPECT_EQ(plan.ranks[0].layers[0].kv_heads, (Range{0, 1}));
  EXPECT_EQ(plan.ranks[1].layers[0].q_heads, (Range{3, 5}));
  EXPECT_EQ(plan.ranks[1].layers[0].kv_heads, (Range{1, 2}));
  EXPECT_EQ(plan.ranks[2].layers[0].q_heads, (Range{5, 7}));
  EXPECT_EQ(plan.ranks[2].layers[0].kv_heads, (Range{1, 3}));
  EXPECT_EQ(plan.ranks[3].layers[0].kv_heads, (Range{2, 3}));
}

TEST(Plan, WeightsMoveTheSharesAtTheGrains) {
  const Plan plan = must(plan_of(smol(), 2, {3, 1}));
  EXPECT_EQ(plan.ranks[0].layers[0].q_heads.size(), 6U);
  EXPECT_EQ(plan.ranks[0].layers[0].ffn.size(), 36U * 32);
  EXPECT_EQ(plan.ranks[0].vocabulary.size(), 36864U);
}

TEST(Plan, LongQuantizationBlocksAreTheGrainWhileTheyGoRound) {
  EXPECT_EQ(must(plan_of(smol(256), 4)).ranks[0].layers[0].ffn.size(), 512U);
  EXPECT_EQ(must(plan_of(smol(256), 7)).ranks[1].layers[0].ffn.size() % 32, 0U);
}

TEST(Plan, AContextIsAddedUpInBytes) {
  const Plan plan = must(plan_of(smol(), 2, {}, 1000));
  EXPECT_EQ(plan.context, 1000U);
  EXPECT_EQ(plan.ranks[1].kv_bytes_per_token, 30U * 1 * 2 * 64 * 2);
  EXPECT_EQ(plan.ranks[1].kv_bytes, plan.ranks[1].kv_bytes_per_token * 1000);
}

TEST(Plan, EightBitKeysAndValuesTakeAByteEachAndAScalePerHead) {
  for (const auto& [type, name] : {std::pair{KvType::kF16, "f16"}, std::pair{KvType::kQ8, "q8"}}) {
    EXPECT_EQ(kv_type_name(type), name);
    EXPECT_EQ(kv_type_from_name(name), type);
  }
  EXPECT_FALSE(kv_type_from_name("q4").has_value());
  World world = smol();
  PlanRequest request;
  request.kv_type = KvType::kQ8;
  const Plan plan = must(make_plan(world.config, world.weights, request));
  // 30 layers, 3 KV heads, keys and values of 64 bytes and a half.
  EXPECT_EQ(plan.kv_bytes_per_token, 30U * 3 * 2 * (64 + 2));
}

TEST(Plan, RefusesWhatCannotWorkAndSaysWhatCan) {
  const World world = smol();
  const auto message = [](const Result<Plan>& plan) {
    EXPECT_EQ(plan.status().code(), StatusCode::kRequest);
    return plan.status().message();
  };
  EXPECT_THAT(message(plan_of(world, 10)),
              AllOf(HasSubstr("9 query heads"), HasSubstr("at most 9 nodes")));
  EXPECT_THAT(message(plan_of(world, 0)), HasSubstr("0 nodes"));
  EXPECT_THAT(message(plan_of(world, 65)), HasSubstr("65 nodes: must be from 1 to 64"));
  EXPECT_THAT(message(plan_of(world, 2, {1, 2, 3})), HasSubstr("1,2,3 has 3 shares"));
  EXPECT_THAT(message(plan_of(world, 2, {1, 0})), HasSubstr("above 0"));
  EXPECT_THAT(message(plan_of(world, 2, {1, -1})), HasSubstr("above 0"));
  EXPECT_THAT(message(plan_of(world, 2, {1, 1e9})), HasSubstr("too far apart"));
  EXPECT_THAT(message(plan_of(world, 1, {}, model::kContextMax + 1)), HasSubstr("context"));
}

TEST(Plan, SplitsAreParsedStrictly) {
  EXPECT_EQ(*parse_split("3,1"), (std::vector<double>{3, 1}));
  EXPECT_EQ(*parse_split("1.5"), (std::vector<double>{1.5}));
  for (const char* bad : {"", ",", "3,", "3,,1", "a", "1;2", "0", "-1,2", "nan", "inf", "1e999"}) {
    EXPECT_EQ(parse_split(bad).status().code(), StatusCode::kRequest) << bad;
  }
}

TEST(Plan, ExplainsItselfNodeByNode) {
  const Plan plan = must(plan_of(smol(), 2));
  ASSERT_EQ(plan.explanation.size(), 5U);
  EXPECT_THAT(plan.explanation[2],
              AllOf(HasSubstr("Node 0"), HasSubstr("heads 0 to 5 of 9"), HasSubstr(" MB")));
}

void expect_cover(const Plan& plan, uint64_t total,
                  const std::function<Range(const RankPlan&)>& of) {
  uint64_t at = 0;
  for (const RankPlan& rank : plan.ranks) {
    ASSERT_EQ(of(rank).begin, at);
    ASSERT_GT(of(rank).size(), 0U);
    at = of(rank).end;
  }
  ASSERT_EQ(at, total);
}

TEST(Plan, EveryPlanCoversEverythingOnceAndEveryQueryHeadFindsItsKvHead) {
  std::mt19937 random(5);
  for (int round = 0; round < 1000; ++round) {
    World world = smol();
    const uint32_t kv_heads = 1 + random() % 8;
    const uint32_t group = 1 + random() % 5;
    for (model::LayerSpec& spec : world.config.layers) {
      spec.kv_heads = kv_heads;
      spec.heads = kv_heads * group;
      spec.ffn = static_cast<uint32_t>(32 * (2 + random() % 60));
    }
    world.config.layers.resize(3);
    world.weights.layers.resize(3);
    world.config.vocab = static_cast<uint32_t>(64 + random() % 5000);
    const auto ranks = static_cast<uint32_t>(1 + random() % (kv_heads * group));
    std::vector<double> weights(ranks);
    for (double& weight : weights) weight = 1 + random() % 9;
    const Plan plan = must(plan_of(world, ranks, weights));
    ASSERT_EQ(plan.kv_heads_replicated, ranks > kv_heads);
    expect_cover(plan, world.config.vocab, [](const RankPlan& rank) { return rank.vocabulary; });
    for (size_t layer = 0; layer < 3; ++layer) {
      const model::LayerSpec& spec = world.config.layers[layer];
      expect_cover(plan, spec.heads, [&](const RankPlan& r) { return r.layers[layer].q_heads; });
      expect_cover(plan, spec.ffn, [&](const RankPlan& r) { return r.layers[layer].ffn; });
      for (const RankPlan& rank : plan.ranks) {
        const LayerShard& shard = rank.layers[layer];
        ASSERT_EQ(shard.kv_heads.begin, shard.q_heads.begin / group);
        ASSERT_EQ(shard.kv_heads.end, (shard.q_heads.end - 1) / group + 1);
        if (ranks <= kv_heads) {
          ASSERT_EQ(shard.q_heads.size(), shard.kv_heads.size() * group);
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal::plan

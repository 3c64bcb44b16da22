#include "tensor/ops/rope.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace shoal::tensor {
namespace {

RopeTable make_table(const RopeConfig& config) { return RopeTable::create(config).value(); }

std::vector<float> rotate(const RopeTable& table, std::vector<float> x, int64_t head_dim,
                          const std::vector<int32_t>& positions, int workers = 1) {
  const auto tokens = static_cast<int64_t>(positions.size());
  const int64_t cols = static_cast<int64_t>(x.size()) / tokens;
  std::vector<float> values(static_cast<size_t>(rope_angles_floats(table, tokens)));
  const RopeAngles angles{&table, values};
  auto pool = std::move(WorkerPool::create({.workers = workers})).value();
  pool->run([&](Worker& me) {
    compute_rope_angles(me, positions, angles);
    me.barrier();
    const Range mine = me.share(tokens);
    for (int64_t token = mine.begin; token < mine.end; ++token) {
      for (int64_t at = 0; at < cols; at += head_dim) {
        angles.rotate(token, x.data() + token * cols + at);
      }
    }
  });
  return x;
}

TEST(Rope, PlainFrequenciesArePowersOfTheBase) {
  const RopeTable table = make_table({.rotary_dims = 64, .theta = 10000});
  ASSERT_EQ(table.pairs(), 32);
  EXPECT_FLOAT_EQ(table.inverse_frequencies()[0], 1.0F);
  EXPECT_FLOAT_EQ(table.inverse_frequencies()[16], 0.01F);
  EXPECT_EQ(table.attention_factor(), 1.0F);
}

// Case C96, values computed in double precision from the published formula.
TEST(Rope, Llama3ScalingKeepsShortWavesAndSlowsLongOnes) {
  const RopeTable plain = make_table({.rotary_dims = 64, .theta = 500000});
  const RopeTable table = make_table({.rotary_dims = 64,
                                      .theta = 500000,
                                      .scaling = RopeScaling::kLlama3,
                                      .factor = 32,
                                      .original_context = 8192,
                                      .low_frequency_factor = 1,
                                      .high_frequency_factor = 4});
  const auto scaled = table.inverse_frequencies();
  for (size_t pair = 0; pair < 15; ++pair) {
    EXPECT_EQ(scaled[pair], plain.inverse_frequencies()[pair]);
  }
  EXPECT_NEAR(scaled[14], 3.211446e-03F, 1e-9);
  EXPECT_NEAR(scaled[15], 1.290548e-03F, 1e-9);
  EXPECT_NEAR(scaled[16], 4.295568e-04F, 1e-10);
  EXPECT_NEAR(scaled[17], 9.708288e-05F, 1e-11);
  EXPECT_NEAR(scaled[18], 1.946164e-05F, 1e-11);
  EXPECT_NEAR(scaled[31], 9.418307e-08F, 1e-13);
  for (size_t pair = 18; pair < 32; ++pair) {
    EXPECT_FLOAT_EQ(scaled[pair], plain.inverse_frequencies()[pair] / 32);
  }
}

// The same scaling given by a file's divisors (GGUF's rope_freqs.weight).
TEST(Rope, DivisorsOfAFileEqualTheFormula) {
  const RopeTable plain = make_table({.rotary_dims = 64, .theta = 500000});
  const RopeTable formula = make_table({.rotary_dims = 64,
                                        .theta = 500000,
                                        .scaling = RopeScaling::kLlama3,
                                        .factor = 32,
                                        .original_context = 8192});
  RopeConfig config{.rotary_dims = 64, .theta = 500000};
  for (size_t pair = 0; pair < 32; ++pair) {
    config.frequency_divisors.push_back(plain.inverse_frequencies()[pair] /
                                        formula.inverse_frequencies()[pair]);
  }
  const RopeTable divided = make_table(config);
  for (size_t pair = 0; pair < 32; ++pair) {
    EXPECT_FLOAT_EQ(divided.inverse_frequencies()[pair], formula.inverse_frequencies()[pair]);
  }
}

// Case C97.
TEST(Rope, YarnHasItsAttentionFactorAndBlendsFrequencies) {
  const auto yarn = [](double factor) {
    return make_table({.rotary_dims = 128,
                       .theta = 1e6,
                       .scaling = RopeScaling::kYarn,
                       .factor = factor,
                       .original_context = 32768});
  };
  EXPECT_NEAR(yarn(4).attention_factor(), 1.1386, 1e-4);
  EXPECT_NEAR(yarn(40).attention_factor(), 1.3689, 1e-4);
  EXPECT_NEAR(yarn(64).attention_factor(), 1.4159, 1e-4);
  EXPECT_NEAR(yarn_mscale(40, 0.707), 0.1 * 0.707 * std::log(40.0) + 1, 1e-12);
  EXPECT_EQ(yarn_mscale(1, 1), 1.0);
  const RopeTable plain = make_table({.rotary_dims = 128, .theta = 1e6});
  const RopeTable table = yarn(4);
  // Bounds by the formula: pair(32 turns) = 128 ln(32768 / (32 * 2 pi)) / (2 ln 1e6) = 23.6, so 23;
  // pair(1 turn) = 39.7, so 40.
  for (size_t pair = 0; pair < 64; ++pair) {
    const double ramp = std::clamp((static_cast<double>(pair) - 23) / (40 - 23), 0.0, 1.0);
    const double frequency = std::pow(1e6, -static_cast<double>(pair) / 64);
    EXPECT_NEAR(table.inverse_frequencies()[pair] / (frequency * (1 - ramp * 0.75)), 1, 1e-6);
  }
  EXPECT_EQ(table.inverse_frequencies()[10], plain.inverse_frequencies()[10]);
}

TEST(Rope, LinearScalingDividesAllFrequencies) {
  const RopeTable table =
      make_table({.rotary_dims = 4, .theta = 100, .scaling = RopeScaling::kLinear, .factor = 4});
  EXPECT_FLOAT_EQ(table.inverse_frequencies()[0], 0.25F);
  EXPECT_FLOAT_EQ(table.inverse_frequencies()[1], 0.025F);
}

TEST(Rope, BothPairingsRotateByTheSameAngles) {
  const RopeTable interleaved = make_table({.rotary_dims = 4, .theta = 100});
  const RopeTable halves =
      make_table({.rotary_dims = 4, .theta = 100, .pairing = RopePairing::kHalfSplit});
  // Pairs (1, 2) by 3 radians and (3, 4) by 0.3; two dimensions stay.
  const std::vector<float> a = rotate(interleaved, {1, 2, 3, 4, 5, 6}, 6, {3});
  const std::vector<float> b = rotate(halves, {1, 3, 2, 4, 5, 6}, 6, {3});
  const std::vector<float> want = {static_cast<float>(std::cos(3.0) - 2 * std::sin(3.0)),
                                   static_cast<float>(std::sin(3.0) + 2 * std::cos(3.0)),
                                   static_cast<float>(3 * std::cos(0.3) - 4 * std::sin(0.3)),
                                   static_cast<float>(3 * std::sin(0.3) + 4 * std::cos(0.3)),
                                   5,
                                   6};
  const size_t place_in_b[] = {0, 2, 1, 3, 4, 5};
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(a[i], want[i], 1e-6F);
    EXPECT_NEAR(b[place_in_b[i]], want[i], 1e-6F);
  }
}

TEST(Rope, EveryHeadOfEveryTokenTurnsByItsPosition) {
  const RopeTable table = make_table({.rotary_dims = 8, .theta = 1000});
  std::vector<float> x(5 * 3 * 8);
  std::mt19937 random(1);
  for (float& value : x) value = std::normal_distribution<float>()(random);
  const std::vector<int32_t> positions = {0, 7, 100, 7, 4095};
  const std::vector<float> all = rotate(table, x, 8, positions, 3);
  for (size_t token = 0; token < 5; ++token) {
    for (size_t head = 0; head < 3; ++head) {
      const auto begin = x.begin() + static_cast<std::ptrdiff_t>((token * 3 + head) * 8);
      const std::vector<float> one =
          rotate(table, std::vector<float>(begin, begin + 8), 8, {positions[token]});
      for (size_t i = 0; i < 8; ++i) ASSERT_EQ(all[(token * 3 + head) * 8 + i], one[i]);
    }
  }
  for (size_t i = 0; i < 24; ++i) EXPECT_EQ(all[i], x[i]);  // position 0
}

TEST(Rope, SettingsThatMakeNoSenseAreRefused) {
  const auto is_refused = [](const RopeConfig& config) {
    const auto table = RopeTable::create(config);
    return !table.is_ok() && table.status().code() == StatusCode::kRequest;
  };
  EXPECT_TRUE(is_refused({.rotary_dims = 0}));
  EXPECT_TRUE(is_refused({.rotary_dims = 7}));
  EXPECT_TRUE(is_refused({.rotary_dims = -2}));
  EXPECT_TRUE(is_refused({.rotary_dims = 8, .theta = 0}));
  EXPECT_TRUE(is_refused({.rotary_dims = 8, .theta = std::nan("")}));
  EXPECT_TRUE(is_refused({.rotary_dims = 8, .scaling = RopeScaling::kLinear, .factor = 0}));
  EXPECT_TRUE(is_refused({.rotary_dims = 8, .scaling = RopeScaling::kYarn, .factor = 4}));
  EXPECT_TRUE(is_refused({.rotary_dims = 8, .frequency_divisors = {1, 1}}));
  EXPECT_TRUE(is_refused({.rotary_dims = 4, .frequency_divisors = {1, 0}}));
  EXPECT_TRUE(is_refused({.rotary_dims = 8,
                          .scaling = RopeScaling::kLlama3,
                          .factor = 8,
                          .original_context = 8192,
                          .low_frequency_factor = 4,
                          .high_frequency_factor = 1}));
}

TEST(Rope, YarnSettingsThatMakeNoSenseAreRefused) {
  const RopeConfig good{
      .rotary_dims = 8, .scaling = RopeScaling::kYarn, .factor = 4, .original_context = 64};
  EXPECT_TRUE(RopeTable::create(good).is_ok());
  const auto is_refused = [&good](double RopeConfig::* field, double value) {
    RopeConfig config = good;
    config.*field = value;
    const auto table = RopeTable::create(config);
    return !table.is_ok() && table.status().code() == StatusCode::kRequest;
  };
  for (const double value : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_TRUE(is_refused(&RopeConfig::beta_fast, value)) << value;
    EXPECT_TRUE(is_refused(&RopeConfig::beta_slow, value)) << value;
  }
  for (const double value : {-1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_TRUE(is_refused(&RopeConfig::attention_factor, value)) << value;
  }
  EXPECT_TRUE(is_refused(&RopeConfig::theta, 1.0));
}

}  // namespace
}  // namespace shoal::tensor

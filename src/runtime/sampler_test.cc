#include "runtime/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "runtime/sampling/random.h"

namespace shoal::runtime {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

Sampler make(SamplingParams params, size_t vocabulary) {
  auto sampler = Sampler::create(std::move(params), vocabulary);
  CHECK_MSG(sampler.is_ok(), sampler.status().message().c_str());
  return std::move(sampler).value();
}

TokenId pick(Sampler& sampler, const std::vector<float>& logits) {
  const auto token = sampler.sample({logits, nullptr});
  CHECK_MSG(token.is_ok(), token.status().message().c_str());
  return token->value();
}

// Logits that fall from a random peak, all distinct.
std::vector<float> random_logits(size_t vocabulary, uint64_t seed) {
  CounterRandom random(seed);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) {
    logit = static_cast<float>(12.0 * random.peek() - 6.0);
    random.advance();
  }
  return logits;
}

// The share of each token over many draws.
std::vector<double> shares(SamplingParams params, const std::vector<float>& logits, int draws) {
  params.seed = 7;
  Sampler sampler = make(params, logits.size());
  std::vector<double> out(logits.size());
  for (int i = 0; i < draws; ++i) out[static_cast<size_t>(pick(sampler, logits))] += 1.0 / draws;
  return out;
}

TEST(CounterRandom, GivesThePublishedPhiloxVectors) {
  const std::array<uint32_t, 4> zeros{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  EXPECT_EQ(philox4x32_10({0, 0, 0, 0}, {0, 0}), zeros);
  const std::array<uint32_t, 4> ones{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd};
  EXPECT_EQ(philox4x32_10({~0U, ~0U, ~0U, ~0U}, {~0U, ~0U}), ones);
  const std::array<uint32_t, 4> pi{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1};
  EXPECT_EQ(
      philox4x32_10({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
      pi);
}

TEST(CounterRandom, IsUniformAndBelowOne) {
  CounterRandom random(0);
  double sum = 0;
  for (int i = 0; i < 10000; ++i, random.advance()) {
    ASSERT_GE(random.peek(), 0.0);
    ASSERT_LT(random.peek(), 1.0);
    sum += random.peek();
  }
  EXPECT_NEAR(sum / 10000, 0.5, 0.015);  // 5 sigma of 1/sqrt(12 * 10000)
}

TEST(Sampler, C57_TheSeedDecidesTheDraws) {
  const std::vector<float> logits = random_logits(1000, 1);
  const auto run = [&](std::optional<uint64_t> seed) {
    SamplingParams params;
    params.seed = seed;
    Sampler sampler = make(params, logits.size());
    std::vector<TokenId> out(64);
    for (TokenId& token : out) token = pick(sampler, logits);
    return std::pair(out, sampler.seed());
  };
  EXPECT_EQ(run(42), run(42));
  EXPECT_NE(run(42).first, run(43).first);
  EXPECT_EQ(run(0), run(0));
  const auto [tokens, seed] = run(std::nullopt);
  EXPECT_NE(tokens, run(std::nullopt).first);
  EXPECT_EQ(tokens, run(seed).first) << "the seed that was drawn repeats the run";
  EXPECT_NE(run(uint64_t{1} << 31).first, run((uint64_t{1} << 63) - 1).first);
}

TEST(Sampler, C57_SeedsAreParsedStrictly) {
  EXPECT_EQ(parse_seed("0")->value(), 0U);
  EXPECT_EQ(parse_seed("9223372036854775807")->value(), (uint64_t{1} << 63) - 1);
  EXPECT_EQ(parse_seed("18446744073709551615")->value(), ~uint64_t{0});
  EXPECT_FALSE(parse_seed("-1")->has_value());
  EXPECT_FALSE(parse_seed("null")->has_value());
  for (const char* bad : {"18446744073709551616", "1.5", "", "x", "-2", "1 ", "+1"}) {
    EXPECT_EQ(parse_seed(bad).status().code(), StatusCode::kRequest) << bad;
  }
}

TEST(Sampler, C59_NonFiniteLogitsAreTheRequestsError) {
  for (const float temperature : {0.0F, 1.0F}) {
    SamplingParams params;
    params.temperature = temperature;
    params.seed = 1;
    Sampler sampler = make(params, 3);
    const std::vector<std::vector<float>> bad{
        {1, kNan, 0}, {1, kInfinity, 0}, {-kInfinity, -kInfinity, -kInfinity}, {kNan, kNan, kNan}};
    for (const auto& logits : bad) {
      const auto token = sampler.sample({logits, nullptr});
      ASSERT_FALSE(token.is_ok());
      EXPECT_EQ(token.status().code(), StatusCode::kRequest);
      EXPECT_NE(token.status().message().find("non-finite logits"), std::string::npos);
      LogitSummary summary;
      summarize(logits, {0, 2, 1}, &summary);
      EXPECT_FALSE(sampler.sample({{}, &summary}).is_ok());
    }
    EXPECT_EQ(pick(sampler, {-kInfinity, -5, -kInfinity}), 1) << "masked tokens are legal";
  }
}

TEST(Sampler, C60_PenaltiesCountOncePerDistinctTokenAndMindTheSign) {
  enum { kA, kB, kC, kD };
  // A, B, C as in the case; D is put where the adjusted logit must be, just above or below.
  const auto beats = [](const SamplingParams& params, TokenId token, float level) {
    SamplingParams greedy = params;
    greedy.temperature = 0;
    for (TokenId other : {kA, kB, kC}) {
      if (other != token) greedy.banned.push_back(other);
    }
    Sampler sampler = make(greedy, 4);
    sampler.accept_generated(kA);
    sampler.accept_generated(kA);
    sampler.accept_generated(kB);
    return pick(sampler, {2, -2, 1, level}) == token;
  };
  const auto is = [&](const SamplingParams& params, TokenId token, float value) {
    return beats(params, token, value - 0.001F) && !beats(params, token, value + 0.001F);
  };
  SamplingParams repetition;
  repetition.repetition_penalty = 2;
  EXPECT_TRUE(is(repetition, kA, 1));
  EXPECT_TRUE(is(repetition, kB, -4));
  EXPECT_TRUE(is(repetition, kC, 1));
  SamplingParams frequency;
  frequency.frequency_penalty = 0.5;
  EXPECT_TRUE(is(frequency, kA, 1));
  EXPECT_TRUE(is(frequency, kB, -2.5));
  EXPECT_TRUE(is(frequency, kC, 1));
  SamplingParams presence;
  presence.presence_penalty = 0.5;
  EXPECT_TRUE(is(presence, kA, 1.5));
  EXPECT_TRUE(is(presence, kB, -2.5));
  SamplingParams negative;
  negative.presence_penalty = -0.5;
  negative.frequency_penalty = -0.5;
  EXPECT_TRUE(is(negative, kA, 3.5));
  EXPECT_TRUE(is(negative, kB, -1));
}

TEST(Sampler, C60_OnlyTheRepetitionPenaltyCountsThePrompt) {
  SamplingParams params;
  params.temperature = 0;
  params.presence_penalty = 100;
  params.frequency_penalty = 100;
  Sampler sampler = make(params, 2);
  sampler.accept_prompt(0);
  EXPECT_EQ(pick(sampler, {2, 1}), 0);
  params.repetition_penalty = 3;
  Sampler repetition = make(params, 2);
  repetition.accept_prompt(0);
  EXPECT_EQ(pick(repetition, {2, 1}), 1);
}

TEST(Sampler, C60_SenselessParametersAreRefusedByName) {
  const auto refused = [](auto&& set, std::string_view name) {
    SamplingParams params;
    set(params);
    const auto sampler = Sampler::create(params, 10);
    return !sampler.is_ok() && sampler.status().code() == StatusCode::kRequest &&
           sampler.status().message().find(name) != std::string::npos;
  };
  EXPECT_TRUE(refused([](auto& p) { p.repetition_penalty = 0; }, "repetition_penalty"));
  EXPECT_TRUE(refused([](auto& p) { p.repetition_penalty = -1; }, "repetition_penalty"));
  EXPECT_TRUE(refused([](auto& p) { p.repetition_penalty = kNan; }, "repetition_penalty"));
  EXPECT_TRUE(refused([](auto& p) { p.repetition_penalty = 1e-30F; }, "repetition_penalty"));
  EXPECT_TRUE(refused([](auto& p) { p.temperature = -0.1F; }, "temperature"));
  EXPECT_TRUE(refused([](auto& p) { p.temperature = kNan; }, "temperature"));
  EXPECT_TRUE(refused([](auto& p) { p.temperature = kInfinity; }, "temperature"));
  EXPECT_TRUE(refused([](auto& p) { p.top_p = 0; }, "top_p"));
  EXPECT_TRUE(refused([](auto& p) { p.top_p = 1.01F; }, "top_p"));
  EXPECT_TRUE(refused([](auto& p) { p.min_p = -0.1F; }, "min_p"));
  EXPECT_TRUE(refused([](auto& p) { p.top_k = -1; }, "top_k"));
  EXPECT_TRUE(refused([](auto& p) { p.presence_penalty = kNan; }, "presence_penalty"));
  EXPECT_TRUE(refused([](auto& p) { p.frequency_penalty = kInfinity; }, "frequency_penalty"));
  EXPECT_TRUE(refused([](auto& p) { p.logit_bias = {{10, 1}}; }, "logit_bias"));
  EXPECT_TRUE(refused([](auto& p) { p.logit_bias = {{-1, 1}}; }, "logit_bias"));
  EXPECT_TRUE(refused([](auto& p) { p.logit_bias = {{1, kNan}}; }, "logit_bias"));
  EXPECT_TRUE(refused([](auto& p) { p.logit_bias = {{1, 3e38F}}; }, "logit_bias"));
  EXPECT_TRUE(refused([](auto& p) { p.presence_penalty = -3e38F; }, "presence_penalty"));
  EXPECT_TRUE(refused([](auto& p) { p.banned = {10}; }, "banned"));
}

TEST(Sampler, C62_GreedyStillAppliesPenaltiesBiasAndBans) {
  SamplingParams params;
  params.temperature = 0;
  params.logit_bias = {{2, 10}};
  Sampler biased = make(params, 3);
  EXPECT_EQ(pick(biased, {1, 0, -5}), 2);

  SamplingParams ban;
  ban.temperature = 0;
  ban.banned = {0};
  ban.logit_bias = {{0, 100}};
  Sampler banned = make(ban, 3);
  EXPECT_EQ(pick(banned, {-1, -7, -3}), 2) << "a ban holds when every other logit is negative";
  ban.temperature = 2;
  Sampler drawing = make(ban, 3);
  for (int i = 0; i < 200; ++i) EXPECT_NE(pick(drawing, {9, -7, -3}), 0);
}

TEST(Sampler, TiesGoToTheLowestId) {
  SamplingParams params;
  params.temperature = 0;
  Sampler sampler = make(params, 4);
  EXPECT_EQ(pick(sampler, {0, 3, 3, 3}), 1);
}

// 20,000 draws: a share p has sigma sqrt(p (1-p) / 20000) <= 0.0036; 5 sigma is 0.018.
constexpr int kDraws = 20000;
constexpr double kShareTolerance = 0.018;
const std::vector<float> kKnown{std::log(0.4F), std::log(0.1F), std::log(0.3F), std::log(0.2F)};

void expect_shares(const std::vector<double>& is, const std::vector<double>& should) {
  for (size_t i = 0; i < should.size(); ++i) {
    EXPECT_NEAR(is[i], should[i], should[i] == 0 ? 0 : kShareTolerance) << "token " << i;
  }
}

TEST(Sampler, DrawsByTheModelsDistribution) {
  expect_shares(shares({}, kKnown, kDraws), {0.4, 0.1, 0.3, 0.2});
}

TEST(Sampler, TheTemperatureSharpensAndFlattens) {
  SamplingParams sharp;
  sharp.temperature = 0.5;  // squares: 16 1 9 4 of 30
  expect_shares(shares(sharp, kKnown, kDraws), {16 / 30.0, 1 / 30.0, 9 / 30.0, 4 / 30.0});
}

TEST(Sampler, TopKTopPAndMinPKeepAPrefixOfTheFallingOrder) {
  SamplingParams top_k;
  top_k.top_k = 2;
  expect_shares(shares(top_k, kKnown, kDraws), {4 / 7.0, 0, 3 / 7.0, 0});
  SamplingParams top_p;
  top_p.top_p = 0.75;  // 0.4 + 0.3 is short of it, so the third is in
  expect_shares(shares(top_p, kKnown, kDraws), {4 / 9.0, 0, 3 / 9.0, 2 / 9.0});
  SamplingParams min_p;
  min_p.min_p = 0.6F;
  expect_shares(shares(min_p, kKnown, kDraws), {4 / 7.0, 0, 3 / 7.0, 0});
  SamplingParams both;  // top_p of what top_k left: 0.5 of 0.7
  both.top_k = 2;
  both.top_p = 0.5;
  expect_shares(shares(both, kKnown, kDraws), {1, 0, 0, 0});
  SamplingParams tiny;
  tiny.top_p = 1e-6F;
  expect_shares(shares(tiny, kKnown, 100), {1, 0, 0, 0});
}

// The summary of a vocabulary split over ranks must give what the full logits give, or say that it
// is not enough.
TEST(Sampler, ASummaryChoosesWhatFullLogitsChooseOrAsksForThem) {
  constexpr size_t kVocabulary = 500;
  int answered = 0;
  int asked = 0;
  std::map<std::string, SamplingParams> cases;
  cases["greedy"].temperature = 0;
  cases["plain"] = {};
  cases["cold"].temperature = 0.3F;
  cases["hot"].temperature = 3;
  cases["top_k"].top_k = 10;
  cases["top_k above the summary"].top_k = 40;
  cases["top_p"].top_p = 0.8F;
  cases["min_p"].min_p = 0.2F;
  cases["penalty"].repetition_penalty = 1.3F;
  cases["penalty"].top_k = 5;
  cases["greedy penalty"].repetition_penalty = 1.5F;
  cases["greedy penalty"].temperature = 0;
  cases["reward"].presence_penalty = -1;
  cases["bias up"].logit_bias = {{3, 5}};
  cases["greedy bias down"].logit_bias = {{3, -5}};
  cases["greedy bias down"].temperature = 0;
  for (auto& [name, params] : cases) {
    params.seed = 11;
    Sampler full = make(params, kVocabulary);
    Sampler brief = make(params, kVocabulary);
    for (uint64_t round = 0; round < 200; ++round) {
      const std::vector<float> logits = random_logits(kVocabulary, 1000 + round);
      std::vector<LogitSummary> parts(2);
      const std::span all(logits);
      const float inverse = brief.inverse_temperature();
      summarize(all.first(130), {0, 32, inverse}, &parts[0]);
      summarize(all.subspan(130), {130, 32, inverse}, &parts[1]);
      LogitSummary summary;
      merge(parts, 32, &summary);
      const TokenId expected = pick(full, logits);
      auto token = brief.sample({{}, &summary});
      ASSERT_TRUE(token.is_ok());
      token->has_value() ? ++answered : ++asked;
      if (!token->has_value()) token = brief.sample({logits, nullptr});
      ASSERT_EQ(token->value(), expected) << name << " round " << round;
      full.accept_generated(expected);
      brief.accept_generated(expected);
    }
  }
  EXPECT_GT(answered, 1000);
  EXPECT_GT(asked, 500);
}

// Against a sort of all rows: ties, impossible tokens, fewer rows than are asked for.
// A mask of these ids of so many.
std::vector<uint32_t> mask_of(const std::vector<TokenId>& ids, size_t vocabulary) {
  std::vector<uint32_t> words((vocabulary + 31) / 32);
  for (const TokenId id : ids) words[static_cast<size_t>(id) / 32] |= 1U << (id % 32);
  return words;
}

TEST(Sampler, OnlyWhatAMaskAllowsIsChosen) {
  const std::vector<float> logits = random_logits(1000, 3);
  const std::vector<TokenId> ids = {7, 31, 32, 500, 999};
  const std::vector<uint32_t> words = mask_of(ids, logits.size());
  for (const float temperature : {0.0F, 0.5F, 1.0F, 2.0F}) {
    for (const int32_t top_k : {0, 2, 40}) {
      SamplingParams params;
      params.temperature = temperature;
      params.top_k = top_k;
      params.repetition_penalty = top_k == 2 ? 1.2F : 1.0F;
      params.seed = 5;
      Sampler sampler = make(params, logits.size());
      for (int i = 0; i < 50; ++i) {
        const auto token = sampler.sample({logits, nullptr}, TokenMask(words));
        ASSERT_TRUE(token.is_ok()) << token.status().message();
        EXPECT_TRUE(std::find(ids.begin(), ids.end(), **token) != ids.end()) << **token;
        sampler.accept_generated(**token);
      }
    }
  }
}

// Masked logits, cut as the model gave them, are drawn from as if the others were impossible.
TEST(Sampler, AMaskIsLikeLogitsOfMinusInfinity) {
  const std::vector<float> logits = random_logits(3000, 9);
  std::vector<TokenId> ids;
  for (TokenId id = 0; id < 3000; id += id % 5 + 1) ids.push_back(id);
  const std::vector<uint32_t> words = mask_of(ids, logits.size());
  std::vector<float> cut(logits.size(), -kInfinity);
  for (const TokenId id : ids) cut[static_cast<size_t>(id)] = logits[static_cast<size_t>(id)];
  for (const float temperature : {0.0F, 0.3F, 1.0F, 4.0F}) {
    for (const float top_p : {0.6F, 1.0F}) {
      SamplingParams params;
      params.temperature = temperature;
      params.top_p = top_p;
      params.seed = 11;
      Sampler masked = make(params, logits.size());
      Sampler plain = make(params, logits.size());
      for (int i = 0; i < 200; ++i) {
        const auto token = masked.sample({logits, nullptr}, TokenMask(words));
        ASSERT_TRUE(token.is_ok());
        EXPECT_EQ(**token, pick(plain, cut)) << temperature << " " << top_p << " " << i;
      }
    }
  }
}

// Penalties, biases and bans give the draws of a model whose logits are so already.
TEST(Sampler, AdjustedLogitsAreDrawnFromAsIfTheModelHadGivenThem) {
  constexpr size_t kVocabulary = 3000;
  const std::vector<float> logits = random_logits(kVocabulary, 4);
  for (const float temperature : {0.0F, 0.5F, 1.0F, 4.0F}) {
    for (const int32_t top_k : {0, 50, 200, std::numeric_limits<int32_t>::max()}) {
      SamplingParams plain_params;
      plain_params.temperature = temperature;
      plain_params.top_k = top_k;
      plain_params.seed = 21;
      SamplingParams params = plain_params;
      params.repetition_penalty = 1.5F;
      params.presence_penalty = 0.25F;
      params.frequency_penalty = -0.5F;
      params.logit_bias = {{4, 12.0F}, {8, -3.0F}};
      params.banned = {9};
      Sampler adjusting = make(params, kVocabulary);
      std::vector<int> counts(kVocabulary);
      adjusting.accept_prompt(3);
      Sampler plain = make(plain_params, kVocabulary);
      for (int i = 0; i < 100; ++i) {
        std::vector<float> given = logits;
        given[3] = given[3] > 0 ? given[3] / 1.5F : given[3] * 1.5F;
        for (size_t id = 0; id < kVocabulary; ++id) {
          if (counts[id] == 0) continue;
          if (id != 3) given[id] = given[id] > 0 ? given[id] / 1.5F : given[id] * 1.5F;
          given[id] -= -0.5F * static_cast<float>(counts[id]) + 0.25F;
        }
        given[4] += 12.0F;
        given[8] += -3.0F;
        given[9] = -kInfinity;
        const TokenId expected = pick(plain, given);
        ASSERT_EQ(pick(adjusting, logits), expected) << temperature << " " << top_k << " " << i;
        adjusting.accept_generated(expected);
        ++counts[static_cast<size_t>(expected)];
      }
    }
  }
}

TEST(Sampler, AMaskedSummaryChoosesWhatMaskedLogitsChooseOrAsksForThem) {
  size_t enough = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    const std::vector<float> logits = random_logits(400, seed);
    std::vector<TokenId> ids;
    for (TokenId id = static_cast<TokenId>(seed % 7); id < 400; id += 7) ids.push_back(id);
    const std::vector<uint32_t> words = mask_of(ids, logits.size());
    SamplingParams params;
    params.temperature = seed % 2 == 0 ? 0.0F : 1.0F;
    params.top_k = 5;
    params.seed = seed;
    LogitSummary summary;
    summarize(logits, {.top_max = 64, .inverse_temperature = 1}, &summary);
    Sampler by_summary = make(params, logits.size());
    Sampler by_logits = make(params, logits.size());
    const auto expected = by_logits.sample({logits, nullptr}, TokenMask(words));
    const auto token = by_summary.sample({{}, &summary}, TokenMask(words));
    ASSERT_TRUE(token.is_ok() && expected.is_ok());
    if (!token->has_value()) continue;
    ++enough;
    EXPECT_EQ(**token, **expected) << seed;
  }
  EXPECT_GT(enough, 100U);
}

TEST(Sampler, AMaskOfImpossibleTokensIsTheRequestsError) {
  std::vector<float> logits(100, 1.0F);
  logits[3] = -kInfinity;
  const std::vector<uint32_t> words = mask_of({3}, logits.size());
  for (const float temperature : {0.0F, 1.0F}) {
    SamplingParams params;
    params.temperature = temperature;
    Sampler sampler = make(params, logits.size());
    const auto token = sampler.sample({logits, nullptr}, TokenMask(words));
    ASSERT_FALSE(token.is_ok());
    EXPECT_EQ(token.status().code(), StatusCode::kRequest);
    logits[50] = kNan;
    EXPECT_FALSE(sampler.sample({logits, nullptr}, TokenMask(mask_of({1}, 100))).is_ok());
    logits[50] = 1;
  }
}

TEST(TokenMask, AllowsNothingBehindItsLastWord) {
  const std::vector<uint32_t> words = {~0U, 1U};
  const TokenMask mask(words);
  EXPECT_TRUE(mask.allows(31) && mask.allows(32));
  EXPECT_FALSE(mask.allows(33) || mask.allows(64) || mask.allows_all());
  EXPECT_TRUE(TokenMask().allows(1'000'000) && TokenMask().allows_all());
}

TEST(LogitSummary, HoldsTheBestRowsInOrder) {
  for (const size_t rows : {1, 5, 255, 256, 257, 1000, 4096}) {
    for (const size_t top_max : {1, 20, 64, 256, 300}) {
      std::vector<float> logits = random_logits(rows, static_cast<uint32_t>(rows + top_max));
      for (size_t i = 0; i < rows; i += 3) logits[i] = std::round(logits[i]);
      for (size_t i = 0; i < rows; i += 7) logits[i] = -kInfinity;
      std::vector<Candidate> sorted(rows);
      for (size_t i = 0; i < rows; ++i) sorted[i] = {static_cast<TokenId>(i + 100), logits[i]};
      std::sort(sorted.begin(), sorted.end(), comes_before);
      sorted.resize(std::min(rows, top_max));
      LogitSummary summary;
      summarize(logits, {100, top_max, 1}, &summary);
      EXPECT_FALSE(summary.non_finite);
      ASSERT_EQ(summary.top.size(), sorted.size());
      for (size_t i = 0; i < sorted.size(); ++i) {
        ASSERT_EQ(summary.top[i].id, sorted[i].id) << rows << " rows, the best " << top_max;
        ASSERT_EQ(summary.top[i].logit, sorted[i].logit);
      }
    }
  }
}

TEST(LogitSummary, SaysWhenARowIsNotFinite) {
  for (const float bad : {kNan, kInfinity}) {
    for (const size_t at : {0, 255, 256, 700}) {
      std::vector<float> logits = random_logits(701, 3);
      logits[at] = bad;
      LogitSummary summary;
      summarize(logits, {0, 64, 1}, &summary);
      EXPECT_TRUE(summary.non_finite);
    }
  }
}

TEST(LogitSummary, IsTheSameHoweverTheRowsAreCut) {
  std::vector<float> logits = random_logits(300, 5);
  logits[17] = logits[200] = logits[201] = 7;
  LogitSummary whole;
  summarize(logits, {0, 20, 0.7F}, &whole);
  EXPECT_EQ(whole.top[0].id, 17);
  EXPECT_EQ(whole.top[1].id, 200);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(0.7 * logit);
  EXPECT_NEAR(whole.log_sum_exp, std::log(sum), 1e-6);
  for (const size_t cut : {1, 50, 201, 299}) {
    std::vector<LogitSummary> parts(2);
    summarize(std::span(logits).first(cut), {0, 20, 0.7F}, &parts[0]);
    summarize(std::span(logits).subspan(cut), {static_cast<TokenId>(cut), 20, 0.7F}, &parts[1]);
    LogitSummary merged;
    merge(parts, 20, &merged);
    EXPECT_EQ(merged.rows, 300U);
    EXPECT_NEAR(merged.log_sum_exp, whole.log_sum_exp, 1e-6);
    ASSERT_EQ(merged.top.size(), 20U);
    for (size_t i = 0; i < 20; ++i) EXPECT_EQ(merged.top[i].id, whole.top[i].id);
  }
}

}  // namespace
}  // namespace shoal::runtime

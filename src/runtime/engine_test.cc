#include "runtime/engine.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/stop_matcher.h"
#include "runtime/testing/local_cluster.h"
#include "runtime/testing/requests.h"
#include "runtime/testing/test_model.h"

namespace shoal::runtime {
namespace {

using testing::all_logits;
using testing::answer;
using testing::ClusterOptions;
using testing::greedy;
using ::testing::HasSubstr;
using testing::LocalCluster;
using testing::max_difference;
using testing::must;
using testing::RandomModel;
using testing::some_tokens;

ClusterOptions exact() {
  ClusterOptions options;
  options.engine.exact = true;
  return options;
}

class GoldenTest : public ::testing::TestWithParam<std::string> {};

// Both sides sum in float32 over at most a few hundred terms; orders differ. Measured: up to 5e-5.
TEST_P(GoldenTest, TheExactPathGivesTheReferencesLogitsFromBothFormats) {
  const testing::Golden golden = testing::load_golden(GetParam());
  for (const std::string& path : golden.paths) {
    const auto model = testing::load_or_die(path);
    LocalCluster cluster(*model, exact());
    for (const bool by_decode : {false, true}) {
      const auto logits = all_logits(cluster.engine(), golden.prompt, by_decode);
      RecordProperty("difference", fmt::format("{:.2g}", max_difference(logits, golden.logits)));
      EXPECT_LT(max_difference(logits, golden.logits), 1e-4) << path << " " << by_decode;
    }
  }
}

// Weights are plain floats here, so only the f16 cache rounds: by 2^-11 of a key or value. A
// probability moves by a few 2^-11, as does the mix of values, in each layer; 1% of the largest
// logit is far above that and far below what a wrong part would do.
TEST_P(GoldenTest, TheDefaultPathIsCloseToTheReference) {
  const testing::Golden golden = testing::load_golden(GetParam());
  const auto model = testing::load_or_die(golden.paths.front());
  LocalCluster cluster(*model, ClusterOptions());
  const auto logits = all_logits(cluster.engine(), golden.prompt);
  RecordProperty("difference", fmt::format("{:.2g}", max_difference(logits, golden.logits) /
                                                         testing::max_size(golden.logits)));
  EXPECT_LT(max_difference(logits, golden.logits), 0.01 * testing::max_size(golden.logits));
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTest, ::testing::ValuesIn(testing::golden_names()));

class EngineTest : public ::testing::Test {
 protected:
  const model::testing::TempFolder folder_;
};

TEST_F(EngineTest, C58_PrefillChunksAndSingleTokensGiveTheSameBits) {
  RandomModel random;
  random.dtype = tensor::DType::kQ4_1;
  random.head_dim = 32;
  const auto model = random.make(folder_);
  const auto tokens = some_tokens(150, random.vocab);
  std::vector<float> expected;
  for (const uint32_t chunk : {256U, 64U, 7U, 1U}) {
    for (const uint32_t threads : {1U, 2U}) {
      ClusterOptions options;
      options.engine.prefill_chunk = chunk;
      options.engine.threads = threads;
      LocalCluster cluster(*model, options);
      const auto logits = all_logits(cluster.engine(), tokens, chunk == 256);
      if (expected.empty()) expected = logits;
      EXPECT_EQ(logits, expected) << "chunk " << chunk << ", threads " << threads;
      EXPECT_EQ(all_logits(cluster.engine(), tokens), expected) << "a second run";
    }
  }
}

// With sessions beside it, and as the case has it: C58_... in serve/scheduler_test.cc.
TEST_F(EngineTest, C58_AReusedPrefixChangesNoToken) {
  RandomModel random;
  random.dtype = tensor::DType::kQ8_0;
  random.head_dim = 32;
  const auto model = random.make(folder_);
  LocalCluster cluster(*model, ClusterOptions());
  Engine& engine = cluster.engine();
  const auto prompt = some_tokens(100, random.vocab);
  const auto fresh = answer(engine, prompt, greedy(16));
  EXPECT_EQ(fresh.tokens.size(), 16U);
  EXPECT_EQ(fresh.reused_tokens, 0U);

  GenerateRequest request = greedy(16);
  request.session = must(engine.open_session());
  request.prompt = std::span(prompt).first(60);
  (void)must(engine.generate(request));
  request.prompt = prompt;
  const auto continued = must(engine.generate(request));
  EXPECT_EQ(continued.reused_tokens, 60U);
  EXPECT_EQ(continued.tokens, fresh.tokens);
  const auto again = must(engine.generate(request));
  EXPECT_EQ(again.reused_tokens, 99U) << "the last token is always computed";
  EXPECT_EQ(again.tokens, fresh.tokens);
  EXPECT_EQ(must(engine.session_tokens(request.session)).size(), 115U)
      << "the last token was not fed back";
}

TEST_F(EngineTest, C58_AStepOfSeveralSessionsGivesTheBitsThatEachGivesAlone) {
  const auto model = RandomModel().make(folder_);
  LocalCluster cluster(*model, ClusterOptions());
  Engine& engine = cluster.engine();
  const auto a = some_tokens(30, 200);
  const auto b = some_tokens(71, 190);
  const auto alone_a = all_logits(engine, a);
  const auto alone_b = all_logits(engine, b);
  // The output has the logits that follow so many tokens of the session that was alone.
  const auto expect_as_alone = [&](size_t output, std::span<const float> alone, size_t tokens) {
    const auto logits = must(engine.fetch_logits(output));
    const auto row = alone.subspan((tokens - 1) * engine.output_rows(), logits.size());
    EXPECT_TRUE(std::ranges::equal(logits, row)) << "after " << tokens;
  };
  const SessionId first = must(engine.open_session());
  const SessionId second = must(engine.open_session());
  size_t at_a = 0;
  size_t at_b = 0;
  while (at_a < a.size() || at_b < b.size()) {
    const size_t next_a = std::min(a.size(), at_a + 5);
    const size_t next_b = std::min(b.size(), at_b + 11);
    std::vector<AdvanceItem> items;
    if (next_b > at_b) items.push_back({second, std::span(b).subspan(at_b, next_b - at_b)});
    if (next_a > at_a) items.push_back({first, std::span(a).subspan(at_a, next_a - at_a)});
    ASSERT_TRUE(engine.advance(items).is_ok());
    size_t output = 0;
    if (next_b > at_b) expect_as_alone(output++, alone_b, next_b);
    if (next_a > at_a) expect_as_alone(output, alone_a, next_a);
    at_a = next_a;
    at_b = next_b;
  }
}

TEST_F(EngineTest, C57_TheSeedRepeatsAnAnswerInAnySession) {
  const auto model = RandomModel().make(folder_);
  const auto prompt = some_tokens(20, 200);
  const auto run = [&](std::optional<uint64_t> seed, int other_sessions) {
    LocalCluster cluster(*model, ClusterOptions());
    for (int i = 0; i < other_sessions; ++i) (void)must(cluster.engine().open_session());
    GenerateRequest request;
    request.sampling.seed = seed;
    request.tokens_max = 64;
    const auto result = answer(cluster.engine(), prompt, request);
    return std::pair(result.tokens, result.seed);
  };
  EXPECT_EQ(run(42, 0), run(42, 3));
  EXPECT_NE(run(42, 0).first, run(43, 0).first);
  const auto [tokens, seed] = run(std::nullopt, 0);
  EXPECT_NE(tokens, run(std::nullopt, 0).first);
  EXPECT_EQ(run(seed, 1).first, tokens);
}

TEST_F(EngineTest, C59_NonFiniteLogitsEndThatRequestOnly) {
  RandomModel random;
  // Token 5 has no finite embedding; nothing else is touched.
  random.change = [](const std::string& name, std::vector<float>& values) {
    if (name == "token_embd.weight") values[5 * 64 + 3] = std::numeric_limits<float>::quiet_NaN();
  };
  const auto model = random.make(folder_);
  LocalCluster cluster(*model, ClusterOptions());
  Engine& engine = cluster.engine();
  for (const float temperature : {0.0F, 1.0F}) {
    GenerateRequest request = greedy(8);
    request.sampling.temperature = temperature;
    request.sampling.banned = {5};
    request.session = must(engine.open_session());
    const std::vector<TokenId> bad{1, 5, 2};
    request.prompt = bad;
    const auto refused = engine.generate(request);
    EXPECT_EQ(refused.status().code(), StatusCode::kRequest);
    EXPECT_THAT(refused.status().message(), HasSubstr("non-finite logits"));
    EXPECT_TRUE(engine.close_session(request.session).is_ok());
    EXPECT_EQ(answer(engine, {1, 6, 2}, greedy(8)).tokens.size(), 8U) << "others go on";
  }
}

// The case's weights: one NaN in the output matrix, or a half that 1e5 makes infinite. Every answer
// needs them, so each request ends with the error, and the engine stays. A prompt beyond the range
// that the model was made for ends at the context (TheContextIsALimitAndNeverACrash).
TEST_F(EngineTest, C59_AWeightThatIsNotFiniteIsNeverASilentAnswer) {
  struct Case {
    tensor::DType dtype;
    float value;
    size_t row;  // of the output matrix; of two ranks the second has 150 and 199
  };
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  for (const Case& one :
       {Case{tensor::DType::kF32, kNaN, 0}, Case{tensor::DType::kF32, kNaN, 199},
        Case{tensor::DType::kF16, 1e5F, 7}, Case{tensor::DType::kF16, 1e5F, 150}}) {
    RandomModel random;
    random.dtype = one.dtype;
    random.change = [&](const std::string& name, std::vector<float>& values) {
      if (name != "output.weight") return;
      values[one.row * 64 + 3] = one.value;
      // Where an infinite weight meets an activation below zero, its row is only impossible: of
      // these two rows one is not.
      values[(one.row + 1) % 200 * 64 + 3] = -one.value;
    };
    const auto model = random.make(folder_);
    for (const uint32_t ranks : {1U, 2U}) {
      ClusterOptions options;
      options.ranks = ranks;
      LocalCluster cluster(*model, options);
      Engine& engine = cluster.engine();
      for (const float temperature : {0.0F, 1.0F, 0.0F}) {
        GenerateRequest request = greedy(8);
        request.sampling.temperature = temperature;
        request.session = must(engine.open_session());
        const std::vector<TokenId> prompt{1, 5, 2};
        request.prompt = prompt;
        const auto refused = engine.generate(request);
        EXPECT_EQ(refused.status().code(), StatusCode::kRequest) << one.row << " " << ranks;
        EXPECT_THAT(refused.status().message(), HasSubstr("non-finite logits"));
        EXPECT_TRUE(engine.close_session(request.session).is_ok());
        EXPECT_TRUE(engine.health().is_ok());
      }
    }
  }
}

TEST_F(EngineTest, C62_TheFirstTokenMayEndTheAnswer) {
  const auto model = RandomModel().make(folder_);
  LocalCluster cluster(*model, ClusterOptions());
  const auto prompt = some_tokens(9, 200);
  const auto plain = answer(cluster.engine(), prompt, greedy(4));
  GenerateRequest request = greedy(4);
  const std::vector<TokenId> ends{plain.tokens[0]};
  request.end_tokens = ends;
  const auto ended = answer(cluster.engine(), prompt, request);
  EXPECT_TRUE(ended.tokens.empty());
  EXPECT_EQ(ended.reason, StopReason::kEndOfGeneration);

  request.sampling.banned = ends;
  const auto banned = answer(cluster.engine(), prompt, request);
  EXPECT_EQ(banned.tokens.size(), 4U);
  EXPECT_EQ(std::count(banned.tokens.begin(), banned.tokens.end(), ends[0]), 0);

  GenerateRequest stopped = greedy(4);
  stopped.on_token = [](TokenId) { return false; };
  EXPECT_EQ(answer(cluster.engine(), prompt, stopped).reason, StopReason::kStopped);
}

TEST_F(EngineTest, ACancelFlagEndsTheAnswerBeforeTheNextStep) {
  const auto model = RandomModel().make(folder_);
  ClusterOptions options;
  options.engine.prefill_chunk = 10;
  LocalCluster cluster(*model, options);
  std::atomic<bool> cancel{false};
  GenerateRequest request = greedy(50);
  request.cancel = &cancel;
  request.on_token = [&, count = 0](TokenId) mutable {
    if (++count == 3) cancel = true;
    return true;
  };
  const auto result = answer(cluster.engine(), some_tokens(30, 200), request);
  EXPECT_EQ(result.reason, StopReason::kCancelled);
  EXPECT_EQ(result.tokens.size(), 3U);

  cancel = false;
  size_t prefilled = 0;
  request.on_prefill = [&](size_t done, size_t) {
    prefilled = done;
    cancel = true;
  };
  const auto early = answer(cluster.engine(), some_tokens(30, 200), request);
  EXPECT_EQ(early.reason, StopReason::kCancelled);
  EXPECT_EQ(prefilled, 10U);
  EXPECT_TRUE(early.tokens.empty());
}

TEST_F(EngineTest, TheContextIsALimitAndNeverACrash) {
  const auto model = RandomModel().make(folder_);
  ClusterOptions options;
  options.context = 40;
  LocalCluster cluster(*model, options);
  Engine& engine = cluster.engine();
  GenerateRequest request = greedy(0);
  request.session = must(engine.open_session());
  const auto long_prompt = some_tokens(41, 200);
  request.prompt = long_prompt;
  const auto refused = engine.generate(request);
  EXPECT_EQ(refused.status().code(), StatusCode::kRequest);
  EXPECT_THAT(refused.status().message(), HasSubstr("41 tokens, the context holds 40"));
  request.prompt = std::span(long_prompt).first(40);
  const auto full = must(engine.generate(request));
  EXPECT_EQ(full.reason, StopReason::kContextFull);
  EXPECT_EQ(full.tokens.size(), 1U) << "the last position gives one more token";
  request.prompt = std::span(long_prompt).first(30);
  EXPECT_EQ(must(engine.generate(request)).tokens.size(), 11U);

  // The one block of 64 positions is taken by the first session.
  request.session = must(engine.open_session());
  const auto crowded = engine.generate(request);
  EXPECT_EQ(crowded.status().code(), StatusCode::kRequest);
  EXPECT_THAT(crowded.status().message(), HasSubstr("context full"));
  EXPECT_TRUE(engine.close_session(0).is_ok());
  EXPECT_EQ(must(engine.generate(request)).tokens.size(), 11U);
}

TEST_F(EngineTest, SenselessRequestsAreRefusedAndChangeNothing) {
  const auto model = RandomModel().make(folder_);
  ClusterOptions options;
  options.engine.sessions_max = 1;
  LocalCluster cluster(*model, options);
  Engine& engine = cluster.engine();
  const SessionId session = must(engine.open_session());
  EXPECT_EQ(engine.open_session().status().code(), StatusCode::kBusy);
  const auto refused = [&](std::vector<TokenId> prompt, SamplingParams sampling = {}) {
    GenerateRequest request;
    request.session = session;
    request.prompt = prompt;
    request.sampling = std::move(sampling);
    return engine.generate(request).status().code() == StatusCode::kRequest;
  };
  EXPECT_TRUE(refused({}));
  EXPECT_TRUE(refused({200}));
  EXPECT_TRUE(refused({-1}));
  SamplingParams bad;
  bad.temperature = -1;
  EXPECT_TRUE(refused({1}, bad));
  EXPECT_EQ(engine.truncate(session, 1).code(), StatusCode::kRequest);
  EXPECT_EQ(engine.close_session(1).code(), StatusCode::kRequest);
  EXPECT_EQ(engine.advance({}).code(), StatusCode::kRequest);
  EXPECT_TRUE(must(engine.session_tokens(session)).empty());
  EXPECT_TRUE(engine.close_session(session).is_ok());
  EXPECT_EQ(engine.close_session(session).code(), StatusCode::kRequest);
}

TEST_F(EngineTest, StatisticsCountTokensAndBytes) {
  const auto model = RandomModel().make(folder_);
  uint64_t loaded = 0;
  ClusterOptions options;
  options.engine.on_load = [&](uint64_t done, uint64_t total) {
    EXPECT_GE(done, loaded);
    EXPECT_LE(done, total);
    loaded = done;
  };
  LocalCluster cluster(*model, options);
  EXPECT_GT(loaded, 0U);
  (void)answer(cluster.engine(), some_tokens(20, 200), greedy(5));
  const EngineStats stats = cluster.engine().stats();
  EXPECT_EQ(stats.prefill_tokens, 20U);
  EXPECT_EQ(stats.decode_tokens, 4U);
  EXPECT_GT(stats.prefill_seconds, 0);
  EXPECT_GT(stats.decode_seconds, 0);
  ASSERT_EQ(stats.nodes.size(), 1U);
  EXPECT_GT(stats.nodes[0].weight_bytes, 0U);
  // 2 layers, 2 KV heads of 16, keys and values, in halves, 256 positions.
  EXPECT_EQ(stats.nodes[0].kv_bytes, 2U * 2 * 16 * 2 * 2 * 256);
  cluster.engine().reset_stats();
  EXPECT_EQ(cluster.engine().stats().prefill_tokens, 0U);
}

TEST_F(EngineTest, TheExactPathNeedsAnExactCache) {
  const auto model = RandomModel().make(folder_);
  const auto plan = must(plan::make_plan(model->config, plan::weight_bytes(model->tensors), {}));
  const auto fabric = fabric::make_single_fabric("node-0");
  collective::Group group(*fabric);
  EngineOptions options;
  options.exact = true;
  const auto engine = Engine::create(*model, plan, group, options);
  EXPECT_EQ(engine.status().code(), StatusCode::kRequest);
}

}  // namespace
}  // namespace shoal::runtime

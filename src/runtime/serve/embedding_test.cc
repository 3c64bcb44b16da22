// Embeddings: what they are, against a reference that is not ours; and that they depend on nothing
// else that runs, step by step.
#include "runtime/serve/embedding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <random>

#include "runtime/serve/batcher.h"
#include "runtime/serve/pooler.h"
#include "runtime/testing/local_cluster.h"
#include "runtime/testing/recorder.h"
#include "runtime/testing/test_model.h"

namespace shoal::runtime {
namespace {

using model::Pooling;
using testing::ClusterOptions;
using ::testing::HasSubstr;
using testing::LocalCluster;
using testing::max_difference;
using testing::max_size;
using testing::RandomModel;
using testing::Recorder;
using testing::some_tokens;

constexpr size_t kVocabulary = 200;

class Receiver final : public EmbeddingSink {
 public:
  void on_embedding(EmbeddingResult result) override {
    CHECK(!result_.has_value());
    result_ = std::move(result);
  }
  bool has_ended() const { return result_.has_value(); }
  const EmbeddingResult& result() const { return result_.value(); }
  const std::vector<float>& values() const {
    CHECK_MSG(result().status.is_ok(), result().status.message().c_str());
    return result().values;
  }

 private:
  std::optional<EmbeddingResult> result_;
};

// A cluster and the batcher over it.
class World {
 public:
  World(const model::Model& model, const ClusterOptions& options, uint32_t prompt_tokens = 24)
      : cluster_(model, options), batcher_(cluster_.engine(), scheduler(prompt_tokens)) {}

  std::shared_ptr<Receiver> embed(std::vector<TokenId> text, Pooling pooling = Pooling::kMean) {
    auto sink = std::make_shared<Receiver>();
    EmbeddingRequest request{.prompt = std::move(text), .pooling = pooling, .sink = sink};
    const Status good = batcher_.check(request);
    CHECK_MSG(good.is_ok(), good.message().c_str());
    batcher_.add(++last_id_, std::move(request), SteadyClock::instance().now());
    return sink;
  }
  std::shared_ptr<Recorder> ask(std::vector<TokenId> prompt, uint32_t tokens_max) {
    auto sink = std::make_shared<Recorder>();
    GenerationRequest request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.tokens_max = tokens_max;
    request.sink = sink;
    batcher_.add(++last_id_, std::move(request), SteadyClock::instance().now());
    return sink;
  }
  void step() {
    const Status status = batcher_.step();
    CHECK_MSG(status.is_ok(), status.message().c_str());
  }
  // Until nothing is left, and never for ever.
  void finish() {
    for (int i = 0; !batcher_.is_idle(); ++i) {
      CHECK(i < 20000);
      step();
    }
  }
  std::vector<float> embedding(const std::vector<TokenId>& text, Pooling pooling) {
    const auto sink = embed(text, pooling);
    finish();
    return sink->values();
  }

  Batcher& batcher() { return batcher_; }
  Engine& engine() { return cluster_.engine(); }
  RequestId last_id() const { return last_id_; }
  SchedulerStats stats() const {
    SchedulerStats stats;
    batcher_.write_stats(&stats);
    return stats;
  }

 private:
  static SchedulerOptions scheduler(uint32_t prompt_tokens) {
    SchedulerOptions options;
    options.prefill_beside_decode = prompt_tokens;
    return options;
  }
  LocalCluster cluster_;
  Batcher batcher_;
  RequestId last_id_ = 0;
};

ClusterOptions cluster_of(uint32_t ranks, uint32_t context) {
  ClusterOptions options;
  options.ranks = ranks;
  options.context = context;
  options.engine.sessions_max = 16;
  options.engine.prefill_chunk = 48;
  return options;
}

// [vocabulary]: the output head times a hidden state.
std::vector<float> logits_of(const model::Model& model, std::span<const float> state) {
  const model::TensorInfo& output = *model.tensors.output;
  const std::vector<float> weights = model::read_floats(output).value();
  std::vector<float> logits(output.shape[0]);
  for (size_t row = 0; row < logits.size(); ++row) {
    double sum = 0;
    for (size_t i = 0; i < state.size(); ++i)
      sum += double{weights[row * state.size() + i]} * state[i];
    logits[row] = static_cast<float>(sum);
  }
  return logits;
}

class GoldenEmbeddings : public ::testing::TestWithParam<std::string> {};

// The golden logits are transformers' own: output head x hidden state. The heads have 240 random
// rows of at most 72 columns, so one vector only gives the logits of the last token, or the mean of
// all logits: the reference's embedding. The exact path's logits differ from them by 5e-5.
TEST_P(GoldenEmbeddings, ThroughTheOutputHeadTheyAreTheReferencesLogits) {
  const testing::Golden golden = testing::load_golden(GetParam());
  const size_t tokens = golden.prompt.size();
  std::vector<float> mean(golden.vocab);
  for (size_t i = 0; i < golden.logits.size(); ++i) {
    mean[i % golden.vocab] += golden.logits[i] / static_cast<float>(tokens);
  }
  const auto last = std::span(golden.logits).last(golden.vocab);
  for (const std::string& path : golden.paths) {
    const auto model = testing::load_or_die(path);
    ASSERT_LT(model->config.hidden, golden.vocab);
    ClusterOptions options = cluster_of(1, 256);
    options.engine.exact = true;
    options.engine.prefill_chunk = 16;  // several steps
    World exact(*model, options);
    const auto mean_of = [&](World& world) {
      return logits_of(*model, world.embedding(golden.prompt, Pooling::kMean));
    };
    const auto last_of = [&](World& world) {
      return logits_of(*model, world.embedding(golden.prompt, Pooling::kLast));
    };
    EXPECT_LT(max_difference(mean_of(exact), mean), 1e-4) << path;
    EXPECT_LT(max_difference(last_of(exact), last), 1e-4) << path;
    EXPECT_GT(max_difference(last_of(exact), mean), 0.1) << "they are not the same thing";
    // As EngineTest says of logits.
    World fast(*model, cluster_of(1, 256));
    EXPECT_LT(max_difference(mean_of(fast), mean), 0.01 * max_size(golden.logits)) << path;
    EXPECT_LT(max_difference(last_of(fast), last), 0.01 * max_size(golden.logits)) << path;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenEmbeddings, ::testing::ValuesIn(testing::golden_names()));

class EmbeddingTest : public ::testing::Test {
 protected:
  const model::testing::TempFolder folder_;
  const std::unique_ptr<model::Model> model_ = RandomModel().make(folder_);
};

// The texts of a test, of 1 to 90 tokens.
std::vector<std::vector<TokenId>> some_texts(size_t count) {
  std::vector<std::vector<TokenId>> texts;
  texts.reserve(count);
  std::mt19937 random(5);
  for (size_t i = 0; i < count; ++i) {
    texts.push_back(some_tokens(1 + random() % 90, kVocabulary - i));
  }
  return texts;
}

Pooling pooling_of(size_t i) { return i % 2 == 0 ? Pooling::kMean : Pooling::kLast; }

// On every layout; among others that answer and embed, in a cache where requests step back.
TEST_F(EmbeddingTest, TheirBitsDependOnNothingElseThatRuns) {
  const auto texts = some_texts(16);
  for (const uint32_t ranks : {1U, 2U, 3U}) {
    std::vector<std::vector<float>> expected;
    {
      World alone(*model_, cluster_of(ranks, 384), 48);
      for (size_t i = 0; i < texts.size(); ++i) {
        expected.push_back(alone.embedding(texts[i], pooling_of(i)));
        EXPECT_EQ(expected.back().size(), alone.engine().hidden_size());
      }
    }
    for (const uint32_t prompt_tokens : {1U, 24U}) {
      World world(*model_, cluster_of(ranks, 384), prompt_tokens);
      std::vector<std::shared_ptr<Receiver>> sinks;
      std::vector<std::shared_ptr<Recorder>> answers;
      std::mt19937 random(ranks);
      for (size_t i = 0; i < texts.size(); ++i) {
        if (i % 2 == 0) answers.push_back(world.ask(texts[i], 100 + random() % 150));
        sinks.push_back(world.embed(texts[i], pooling_of(i)));
        for (size_t n = random() % 6; n > 0; --n) world.step();
      }
      world.finish();
      for (size_t i = 0; i < texts.size(); ++i) {
        EXPECT_EQ(sinks[i]->values(), expected[i]) << "text " << i << ", ranks " << ranks;
        EXPECT_EQ(sinks[i]->result().prompt_tokens, texts[i].size());
      }
      for (const auto& answer : answers) EXPECT_TRUE(answer->wait().status.is_ok());
      EXPECT_GT(world.stats().preemptions, 0U);
      EXPECT_EQ(world.stats().embeddings, texts.size());
      EXPECT_EQ(world.stats().kv_positions_used, 0U);
    }
  }
}

TEST_F(EmbeddingTest, OneThatStepsBackComesToTheSameBits) {
  const auto text = some_tokens(190, kVocabulary);
  World alone(*model_, cluster_of(1, 384), 48);
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    const auto expected = alone.embedding(text, pooling);
    World world(*model_, cluster_of(1, 384), 1);  // six blocks, a token of the text for each step
    const auto answer = world.ask(some_tokens(60, 190), 250);
    while (answer->tokens().empty()) world.step();
    const auto sink = world.embed(text, pooling);
    world.finish();
    EXPECT_GT(world.stats().preemptions, 0U);
    EXPECT_EQ(sink->values(), expected);
    EXPECT_EQ(answer->tokens().size(), 250U);
    EXPECT_GT(world.stats().prefill_tokens, 60U + 190) << "it was computed twice";
  }
}

TEST_F(EmbeddingTest, TheyNeverStopAnAnswer) {
  World world(*model_, cluster_of(1, 1024), 8);
  const auto answer = world.ask(some_tokens(5, kVocabulary), 200);
  while (answer->tokens().empty()) world.step();
  std::vector<std::shared_ptr<Receiver>> sinks;
  sinks.reserve(6);
  for (size_t i = 0; i < 6; ++i) sinks.push_back(world.embed(some_tokens(100, kVocabulary - i)));
  size_t steps = 0;
  while (!sinks.back()->has_ended()) {
    const size_t before = answer->tokens().size();
    world.step();
    EXPECT_EQ(answer->tokens().size(), before + 1);
    ++steps;
  }
  EXPECT_GE(steps, 600U / 8);
}

TEST_F(EmbeddingTest, TheyNeitherTakeFromThePrefixCacheNorFillIt) {
  World world(*model_, cluster_of(1, 512));
  const auto prompt = some_tokens(140, kVocabulary);
  (void)world.ask(prompt, 3);
  world.finish();
  const SchedulerStats before = world.stats();
  EXPECT_GT(before.kv_positions_cached, 0U);
  (void)world.embedding(prompt, Pooling::kMean);
  const SchedulerStats after = world.stats();
  EXPECT_EQ(after.kv_positions_cached, before.kv_positions_cached);
  EXPECT_EQ(after.reused_tokens, before.reused_tokens);
  EXPECT_EQ(after.prefill_tokens, before.prefill_tokens + 140);
  EXPECT_EQ(after.prompt_tokens, 280U);
  EXPECT_EQ(after.embedding_tokens, 140U);
}

TEST_F(EmbeddingTest, ACancelledOneEndsBeforeTheNextStep) {
  World world(*model_, cluster_of(1, 512), 8);
  const auto running = world.embed(some_tokens(100, kVocabulary));
  world.step();
  EXPECT_GT(world.stats().kv_positions_used, 0U);
  const auto queued = world.embed(some_tokens(100, kVocabulary));
  world.batcher().cancel(world.last_id());
  EXPECT_TRUE(queued->result().is_cancelled);
  EXPECT_EQ(queued->result().compute_seconds, 0);
  world.batcher().cancel(world.last_id() - 1);
  EXPECT_TRUE(running->result().is_cancelled);
  EXPECT_TRUE(running->result().values.empty());
  EXPECT_TRUE(world.batcher().is_idle());
  EXPECT_EQ(world.stats().kv_positions_used, 0U);
  EXPECT_EQ(world.stats().requests_cancelled, 2U);
  EXPECT_EQ(world.stats().embeddings, 0U);
}

TEST_F(EmbeddingTest, WhatCanNeverBeMetIsRefused) {
  World world(*model_, cluster_of(1, 128));
  const auto check = [&](const EmbeddingRequest& request) {
    return world.batcher().check(request).message();
  };
  const auto sink = std::make_shared<Receiver>();
  EXPECT_THAT(check({.prompt = {1}}), HasSubstr("no sink"));
  EXPECT_THAT(check({.prompt = {}, .sink = sink}), HasSubstr("empty"));
  EXPECT_THAT(check({.prompt = {200}, .sink = sink}), HasSubstr("token 200"));
  EXPECT_THAT(check({.prompt = some_tokens(129, 200), .sink = sink}),
              HasSubstr("129 tokens, the context holds 128"));
  EXPECT_EQ(check({.prompt = some_tokens(128, 200), .sink = sink}), "");
  EXPECT_EQ(world.embedding(some_tokens(128, 200), Pooling::kLast).size(),
            world.engine().hidden_size());
}

TEST_F(EmbeddingTest, AStateThatIsNoNumberFailsItsRequestAlone) {
  RandomModel random;
  random.change = [](const std::string& name, std::vector<float>& values) {
    if (name == "token_embd.weight")
      values[size_t{7} * 64] = std::numeric_limits<float>::infinity();
  };
  const model::testing::TempFolder folder;
  const auto model = random.make(folder);
  World world(*model, cluster_of(1, 256));
  const auto good = world.embed({1, 2, 3});
  const auto bad = world.embed({1, 7, 3});
  world.finish();
  EXPECT_TRUE(good->result().status.is_ok());
  EXPECT_EQ(bad->result().status.code(), StatusCode::kRequest);
  EXPECT_THAT(bad->result().status.message(), HasSubstr("non-finite"));
  EXPECT_EQ(world.stats().requests_failed, 1U);
}

TEST(Pooler, PassesOverWhatItHasSeen) {
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    Pooler pooler(pooling, 2);
    pooler.add(0, std::vector<float>{1, 2, 3, 4});
    pooler.add(1, std::vector<float>{3, 4, 8, 9});
    pooler.add(0, std::vector<float>{1, 2});
    const std::vector<float> expected =
        pooling == Pooling::kMean ? std::vector<float>{4, 5} : std::vector<float>{8, 9};
    EXPECT_EQ(pooler.finish().value(), expected);
  }
}

}  // namespace
}  // namespace shoal::runtime

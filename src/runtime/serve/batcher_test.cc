// The scheduler step by step, on one thread: every order of events that matters, made on purpose.
#include "runtime/serve/batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "runtime/rank/rank_instance.h"
#include "runtime/testing/local_cluster.h"
#include "runtime/testing/recorder.h"
#include "runtime/testing/requests.h"
#include "runtime/testing/test_model.h"

namespace shoal::runtime {
namespace {

using testing::answer;
using testing::ClusterOptions;
using ::testing::HasSubstr;
using testing::LocalCluster;
using testing::RandomModel;
using testing::Recorder;
using testing::some_tokens;

constexpr size_t kVocabulary = 200;

// What a request asks, apart from where it goes.
struct Ask {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  uint32_t tokens_max = 0;
  std::vector<TokenId> end_tokens;
  bool want_logprobs = false;
  uint32_t logprobs_top = 0;
  std::shared_ptr<const TokenGrammar> grammar;
};

Ask greedy(std::vector<TokenId> prompt, uint32_t tokens_max) {
  Ask ask;
  ask.prompt = std::move(prompt);
  ask.sampling.temperature = 0;
  ask.tokens_max = tokens_max;
  return ask;
}

// Tokens that differ from those of another `kind` from the first on.
std::vector<TokenId> tokens_of(size_t kind, size_t count) {
  std::vector<TokenId> tokens(count);
  for (size_t i = 0; i < count; ++i) {
    tokens[i] = static_cast<TokenId>((kind * 31 + i * (kind % 7 + 3) + i * i % 11) % kVocabulary);
  }
  return tokens;
}

std::vector<TokenId> joined(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

class BatcherTest : public ::testing::Test {
 protected:
  struct World {
    std::unique_ptr<LocalCluster> cluster;
    std::unique_ptr<Batcher> batcher;
    RequestId last_id = 0;

    Engine& engine() const { return cluster->engine(); }
    SchedulerStats stats() const {
      SchedulerStats stats;
      batcher->write_stats(&stats);
      return stats;
    }
    std::shared_ptr<Recorder> add(const Ask& ask, Recorder::OnToken on_token = nullptr) {
      auto sink = std::make_shared<Recorder>(std::move(on_token));
      GenerationRequest request;
      request.prompt = ask.prompt;
      request.sampling = ask.sampling;
      request.tokens_max = ask.tokens_max;
      request.end_tokens = ask.end_tokens;
      request.want_logprobs = ask.want_logprobs;
      request.logprobs_top = ask.logprobs_top;
      request.grammar = ask.grammar;
      request.sink = sink;
      const Status good = batcher->check(request);
      CHECK_MSG(good.is_ok(), good.message().c_str());
      batcher->add(++last_id, std::move(request), SteadyClock::instance().now());
      return sink;
    }
    void step() const {
      const Status status = batcher->step();
      CHECK_MSG(status.is_ok(), status.message().c_str());
    }
    // Until nothing is left, and never for ever.
    void finish() const {
      for (int i = 0; !batcher->is_idle(); ++i) {
        CHECK(i < 20000);
        step();
      }
    }
  };

  // Nothing is drafted unless the options say how much, so that a test can count tokens and steps.
  World make(const ClusterOptions& options, SchedulerOptions scheduler = {}) {
    if (scheduler.prefill_beside_decode == 0) scheduler.prefill_beside_decode = 24;
    if (scheduler.draft_tokens == 0) scheduler.speculation = Speculation::kOff;
    World world;
    world.cluster = std::make_unique<LocalCluster>(*model_, options);
    world.batcher = std::make_unique<Batcher>(world.engine(), scheduler);
    return world;
  }

  static ClusterOptions cluster_of(uint32_t ranks, uint32_t context, uint32_t sessions = 16) {
    ClusterOptions options;
    options.ranks = ranks;
    options.context = context;
    options.engine.sessions_max = sessions;
    options.engine.prefill_chunk = 48;
    return options;
  }

  // What the engine answers when it does nothing else, by its own loop and without any cache.
  static GenerateResult alone(Engine& engine, const Ask& ask) {
    GenerateRequest request;
    request.sampling = ask.sampling;
    request.tokens_max = ask.tokens_max;
    request.end_tokens = ask.end_tokens;
    return answer(engine, ask.prompt, std::move(request));
  }

  std::vector<GenerateResult> all_alone(const ClusterOptions& options,
                                        const std::vector<Ask>& asks) const {
    LocalCluster cluster(*model_, options);
    std::vector<GenerateResult> results;
    results.reserve(asks.size());
    for (const Ask& ask : asks) results.push_back(alone(cluster.engine(), ask));
    return results;
  }

  // A model with opinions: its answers repeat themselves, sampled ones too, but not always.
  void use_repeating_model() {
    RandomModel random;
    random.change = [](const std::string& name, std::vector<float>& values) {
      if (name != "output.weight") return;
      for (float& value : values) value *= 5;
    };
    model_ = random.make(repeating_folder_);
  }

  // Adds the requests one by one, with random many steps between them, until all have ended.
  static std::vector<std::shared_ptr<Recorder>> run_together(World& world,
                                                             const std::vector<Ask>& asks) {
    std::mt19937 random(5);
    std::vector<std::shared_ptr<Recorder>> sinks;
    for (const Ask& ask : asks) {
      sinks.push_back(world.add(ask));
      for (size_t i = random() % 6; i > 0; --i) world.step();
    }
    world.finish();
    return sinks;
  }

  const model::testing::TempFolder folder_;
  const model::testing::TempFolder repeating_folder_;
  std::unique_ptr<model::Model> model_ = RandomModel().make(folder_);
};

// Requests of every kind, many of which begin alike.
std::vector<Ask> mixed_requests(size_t count) {
  std::mt19937 random(11);
  std::vector<Ask> asks(count);
  for (size_t i = 0; i < count; ++i) {
    Ask& ask = asks[i];
    ask.prompt = joined(tokens_of(random() % 3, 1 + random() % 70), tokens_of(i, random() % 30));
    ask.tokens_max = i % 2 == 0 ? 1 + random() % 100 : 100 + random() % 150;
    ask.sampling.seed = random();
    ask.sampling.temperature = i % 3 == 0 ? 0.0F : 0.8F + 0.1F * static_cast<float>(i % 5);
    if (i % 4 == 1) ask.sampling.top_k = 5;
    if (i % 4 == 2) ask.sampling.top_p = 0.7F;
    if (i % 5 == 3) ask.sampling.frequency_penalty = 0.5F;
    if (i % 5 == 4) ask.sampling.logit_bias = {{static_cast<TokenId>(i), 3.0F}};
    if (i % 2 == 0) ask.end_tokens = {static_cast<TokenId>(random() % kVocabulary)};
    ask.want_logprobs = i % 3 == 1;
    ask.logprobs_top = i % 3 == 1 ? 4 : 0;
  }
  return asks;
}

void expect_answers(const std::vector<std::shared_ptr<Recorder>>& sinks,
                    const std::vector<GenerateResult>& expected) {
  for (size_t i = 0; i < expected.size(); ++i) {
    const GenerationResult result = sinks[i]->wait();
    ASSERT_TRUE(result.status.is_ok()) << result.status.message();
    EXPECT_EQ(sinks[i]->tokens(), expected[i].tokens) << "request " << i;
    EXPECT_EQ(result.reason, expected[i].reason) << "request " << i;
    EXPECT_EQ(result.seed, expected[i].seed);
    EXPECT_EQ(result.prompt_tokens, expected[i].prompt_tokens);
    EXPECT_EQ(result.generated_tokens, expected[i].tokens.size());
  }
}

// Same request and seed, alone and among others, on every layout. The cache is so
// small that requests step back, and prompts are found in it, while others run.
TEST_F(BatcherTest, AnswersDependOnNothingElseThatRuns) {
  const std::vector<Ask> asks = mixed_requests(40);
  for (const uint32_t ranks : {1U, 2U, 3U}) {
    ClusterOptions options = cluster_of(ranks, 384);
    if (ranks == 2) options.kv_type = plan::KvType::kQ8;
    const std::vector<GenerateResult> expected = all_alone(options, asks);
    World world = make(options);
    SCOPED_TRACE(ranks);
    expect_answers(run_together(world, asks), expected);
    const SchedulerStats stats = world.stats();
    EXPECT_GT(stats.preemptions, 0U);
    EXPECT_GT(stats.reused_tokens, 500U);
    EXPECT_EQ(stats.requests_finished, asks.size());
    EXPECT_EQ(stats.kv_positions_used, 0U);
  }
}

// However many tokens are drafted, and whatever the sampler: the tokens, and how the answer ends,
// are those of the engine's own loop, which drafts nothing.
TEST_F(BatcherTest, DraftsChangeNoAnswer) {
  use_repeating_model();
  std::vector<Ask> asks = mixed_requests(32);
  for (size_t i = 0; i < asks.size(); i += 8) asks[i].tokens_max = 0;
  for (const uint32_t ranks : {1U, 2U, 3U}) {
    ClusterOptions options = cluster_of(ranks, 384);
    if (ranks == 2) options.kv_type = plan::KvType::kQ8;
    const std::vector<GenerateResult> expected = all_alone(options, asks);
    for (const uint32_t drafts : {1U, 4U, 16U}) {
      SCOPED_TRACE(::testing::Message() << ranks << " ranks, " << drafts << " drafted");
      SchedulerOptions scheduler;
      scheduler.draft_tokens = drafts;
      World world = make(options, scheduler);
      expect_answers(run_together(world, asks), expected);
      const SchedulerStats stats = world.stats();
      EXPECT_GT(stats.accepted_tokens, 200U);
      EXPECT_GT(stats.drafted_tokens, stats.accepted_tokens + 50);
      EXPECT_LE(stats.drafted_tokens, stats.drafts * drafts);
      EXPECT_GT(stats.preemptions, 0U);
      EXPECT_GT(stats.reused_tokens, 300U);
      EXPECT_EQ(stats.kv_positions_used, 0U);
    }
  }
}

TEST_F(BatcherTest, DraftsChangeNoLogprob) {
  use_repeating_model();
  std::vector<Ask> asks = mixed_requests(12);
  for (Ask& ask : asks) {
    ask.want_logprobs = true;
    ask.logprobs_top = 5;
  }
  for (const uint32_t ranks : {1U, 2U}) {
    SchedulerOptions scheduler;
    World plain = make(cluster_of(ranks, 1024), scheduler);
    const auto expected = run_together(plain, asks);
    scheduler.draft_tokens = 6;
    World world = make(cluster_of(ranks, 1024), scheduler);
    const auto sinks = run_together(world, asks);
    EXPECT_GT(world.stats().accepted_tokens, 50U);
    EXPECT_LT(world.stats().steps, plain.stats().steps);
    for (size_t i = 0; i < asks.size(); ++i) {
      EXPECT_EQ(sinks[i]->tokens(), expected[i]->tokens());
      EXPECT_EQ(sinks[i]->logprobs(), expected[i]->logprobs()) << "to the bit";
    }
  }
}

// Ended by its reader, by a limit, by a token and by its client, all in the middle of drafts: it
// has not a token more, and what stays in the cache is good for who comes next.
TEST_F(BatcherTest, ADraftGoesNoFurtherThanItsAnswer) {
  use_repeating_model();
  for (const uint32_t ranks : {1U, 2U}) {
    LocalCluster reference(*model_, cluster_of(ranks, 1024));
    const Ask whole = greedy(tokens_of(1, 30), 120);
    const std::vector<TokenId> expected = alone(reference.engine(), whole).tokens;
    SchedulerOptions scheduler;
    scheduler.draft_tokens = 7;
    World world = make(cluster_of(ranks, 1024), scheduler);
    const auto tokens_to = [&](size_t count) {
      return std::vector<TokenId>(expected.begin(), expected.begin() + static_cast<int>(count));
    };
    for (size_t count = 60; count < 75; count += 4) {
      const auto stopped =
          world.add(whole, [&](const GeneratedToken& token) { return token.index + 1 < count; });
      world.finish();
      EXPECT_EQ(stopped->wait().reason, StopReason::kStopped);
      EXPECT_EQ(stopped->tokens(), tokens_to(count));

      Ask ask = whole;
      ask.tokens_max = static_cast<uint32_t>(count);
      const auto limited = world.add(ask);
      world.finish();
      EXPECT_EQ(limited->tokens(), tokens_to(count));

      ask = whole;
      ask.end_tokens = {expected[count]};
      const auto ended = world.add(ask);
      world.finish();
      EXPECT_EQ(ended->wait().reason, StopReason::kEndOfGeneration);
      const auto end = std::find(expected.begin(), expected.end(), expected[count]);
      EXPECT_EQ(ended->tokens(), std::vector<TokenId>(expected.begin(), end));

      const auto cancelled = world.add(whole);
      while (cancelled->tokens().size() < count) world.step();
      world.batcher->cancel(world.last_id);
      EXPECT_EQ(cancelled->tokens(), tokens_to(cancelled->tokens().size()));

      const Ask next = greedy(joined(joined(whole.prompt, tokens_to(count)), tokens_of(5, 9)), 20);
      const auto follow_up = world.add(next);
      world.finish();
      EXPECT_GT(follow_up->wait().reused_tokens, 64U);
      EXPECT_EQ(follow_up->tokens(), alone(reference.engine(), next).tokens);
    }
    EXPECT_GT(world.stats().accepted_tokens, 100U);
    EXPECT_EQ(world.stats().kv_positions_used, 0U);
  }
}

TEST_F(BatcherTest, DraftsTakeOnlyRoomThatIsLeft) {
  use_repeating_model();
  SchedulerOptions scheduler;
  scheduler.draft_tokens = 16;
  World world = make(cluster_of(1, 4096, 16), scheduler);
  ASSERT_EQ(world.engine().step_outputs_max(), 16U);
  std::vector<std::shared_ptr<Recorder>> sinks;
  sinks.reserve(16);
  for (size_t i = 0; i < 16; ++i) sinks.push_back(world.add(greedy(tokens_of(i, 20), 1000)));
  while (std::any_of(sinks.begin(), sinks.end(), [](auto& s) { return s->tokens().empty(); })) {
    world.step();
  }
  ASSERT_FALSE(std::any_of(sinks.begin(), sinks.end(), [](auto& s) { return s->is_finished(); }));
  const uint64_t before = world.stats().drafted_tokens;
  EXPECT_GT(before, 0U);
  for (int i = 0; i < 20; ++i) world.step();
  EXPECT_EQ(world.stats().drafted_tokens, before) << "a row of logits for each answer, none beside";
  for (RequestId id = 5; id <= 16; ++id) world.batcher->cancel(id);
  for (int i = 0; i < 20; ++i) world.step();
  EXPECT_GT(world.stats().drafted_tokens, before);
}

TEST_F(BatcherTest, LogprobsAreOfTheModelsOwnDistribution) {
  std::vector<Ask> asks(5, greedy(some_tokens(30, kVocabulary), 12));
  asks[1].sampling.temperature = 0.6F;
  asks[2].sampling.temperature = 1;
  asks[2].sampling.top_k = 3;
  asks[3].sampling.logit_bias = {{7, 100.0F}};
  asks[4].sampling.temperature = 1.5F;
  asks[4].sampling.presence_penalty = 0.7F;
  for (const uint32_t ranks : {1U, 2U}) {
    World world = make(cluster_of(ranks, 640));
    std::vector<std::shared_ptr<Recorder>> without;
    std::vector<std::shared_ptr<Recorder>> with;
    for (Ask& ask : asks) {
      ask.sampling.seed = 3;
      ask.want_logprobs = false;
      without.push_back(world.add(ask));
      ask.want_logprobs = true;
      ask.logprobs_top = 20;
      with.push_back(world.add(ask));
    }
    world.finish();
    for (size_t i = 0; i < asks.size(); ++i) {
      const std::vector<TokenId> tokens = with[i]->tokens();
      EXPECT_EQ(tokens, without[i]->tokens()) << "asking for them changes nothing";
      const auto logits = testing::all_logits(world.engine(), joined(asks[i].prompt, tokens));
      for (size_t n = 0; n < tokens.size(); ++n) {
        const auto row =
            std::span(logits).subspan((asks[i].prompt.size() - 1 + n) * kVocabulary, kVocabulary);
        double sum = 0;
        for (const float logit : row) sum += std::exp(double{logit});
        const auto logprob = [&](TokenId id) {
          return double{row[static_cast<size_t>(id)]} - std::log(sum);
        };
        EXPECT_NEAR(with[i]->logprobs()[n], logprob(tokens[n]), 1e-4);
        const std::vector<TokenLogprob> top = with[i]->tops()[n];
        ASSERT_EQ(top.size(), 20U);
        std::vector<float> sorted(row.begin(), row.end());
        std::sort(sorted.begin(), sorted.end(), std::greater<>());
        for (size_t k = 0; k < top.size(); ++k) {
          EXPECT_NEAR(top[k].logprob, double{sorted[k]} - std::log(sum), 1e-4);
          EXPECT_NEAR(top[k].logprob, logprob(top[k].id), 1e-4);
          if (k > 0) EXPECT_LE(top[k].logprob, top[k - 1].logprob);
        }
      }
    }
    EXPECT_THAT(with[3]->tokens(), ::testing::Each(7)) << "a forced token's is the model's, too";
  }
}

TEST_F(BatcherTest, ALongPromptNeverStopsAnotherAnswer) {
  World world = make(cluster_of(1, 2048));
  const auto stream = world.add(greedy(tokens_of(1, 5), 100));
  world.step();
  const auto prompt = world.add(greedy(tokens_of(2, 900), 3));
  const auto other = world.add(greedy(tokens_of(3, 700), 3));
  ASSERT_EQ(stream->tokens().size(), 1U);
  for (size_t step = 2; step <= 30; ++step) {
    world.step();
    ASSERT_EQ(stream->tokens().size(), step);
  }
  EXPECT_TRUE(prompt->tokens().empty()) << "24 tokens of prompts in a step: still under way";
  EXPECT_EQ(world.stats().prefill_tokens, 5U + 29 * 24);
  world.finish();
  EXPECT_EQ(prompt->tokens().size(), 3U);
  EXPECT_EQ(other->tokens().size(), 3U);
}

TEST_F(BatcherTest, PromptsTakeTurns) {
  World world = make(cluster_of(1, 2048));
  const auto first = world.add(greedy(tokens_of(1, 700), 1));
  const auto second = world.add(greedy(tokens_of(2, 700), 1));
  const auto little = world.add(greedy(tokens_of(3, 10), 1));
  for (int i = 0; i < 3; ++i) world.step();
  EXPECT_TRUE(little->is_finished()) << "it waits for one turn of each other prompt";
  size_t steps = 3;
  while (!first->is_finished()) {
    world.step();
    ++steps;
  }
  for (int i = 0; i < 2; ++i) world.step();
  EXPECT_TRUE(second->is_finished()) << "both got half of the steps";
  EXPECT_GE(steps, 2U * 700 / 48);
}

TEST_F(BatcherTest, AnswersStartBeforeAPromptThatCameEarlierIsDone) {
  SchedulerOptions scheduler;
  scheduler.running_max = 2;
  World world = make(cluster_of(1, 2048), scheduler);
  const auto first = world.add(greedy(tokens_of(1, 20), 3));
  const auto second = world.add(greedy(tokens_of(2, 20), 3));
  const auto third = world.add(greedy(tokens_of(3, 20), 3));
  world.step();
  EXPECT_EQ(world.stats().running, 2U);
  EXPECT_EQ(world.stats().queued, 1U) << "no more run than running_max";
  while (!third->is_finished()) world.step();
  EXPECT_TRUE(first->is_finished() && second->is_finished());
}

// It starts as soon as those before it have ended, however many come after it; and of these, those
// that fit beside it do not wait for it.
TEST_F(BatcherTest, ARequestThatWaitsForRoomIsOvertakenOnlyInTheRoomThatItLeaves) {
  World world = make(cluster_of(1, 1280));  // 20 blocks
  const auto first = world.add(greedy(tokens_of(1, 500), 300));
  while (first->tokens().empty()) world.step();
  const Ask long_prompt = greedy(tokens_of(2, 800), 5);
  const auto waiting = world.add(long_prompt);
  const auto endless = world.add(greedy(tokens_of(3, 10), 0));
  std::vector<std::shared_ptr<Recorder>> small;
  small.reserve(6);
  for (size_t i = 0; i < 6; ++i) small.push_back(world.add(greedy(tokens_of(10 + i, 10), 20)));
  for (int i = 0; i < 150; ++i) {
    world.step();
    ASSERT_LE(world.stats().running, 3U) << "13 blocks of 20 stay for it: two of the small ones";
  }
  EXPECT_FALSE(first->is_finished());
  for (const auto& sink : small) EXPECT_TRUE(sink->is_finished());
  EXPECT_EQ(world.stats().queued, 2U);
  EXPECT_TRUE(endless->tokens().empty()) << "it may come to need all of the cache";

  size_t kind = 100;
  while (!first->is_finished()) {
    world.add(greedy(tokens_of(++kind, 10), 20));
    world.step();
  }
  EXPECT_TRUE(waiting->tokens().empty());
  const size_t behind = world.stats().queued;
  world.step();
  EXPECT_LT(world.stats().queued, behind);
  int steps = 1;
  for (; waiting->tokens().empty(); ++steps) {
    world.add(greedy(tokens_of(++kind, 10), 20));
    world.step();
  }
  EXPECT_LE(steps, 120) << "800 tokens, 24 a step, beside prompts of 10";
  world.finish();
  EXPECT_EQ(waiting->tokens(), alone(make(cluster_of(1, 1280)).engine(), long_prompt).tokens);
  EXPECT_TRUE(endless->is_finished());
}

// Nor is one that waits for a beginning that another request computes.
TEST_F(BatcherTest, ARequestThatWaitsForItsBeginningKeepsItsRoom) {
  World world = make(cluster_of(1, 1280));  // 20 blocks
  const std::vector<TokenId> shared = tokens_of(1, 100);
  std::vector<TokenId> long_prompt = shared;
  const std::vector<TokenId> rest = tokens_of(2, 700);
  long_prompt.insert(long_prompt.end(), rest.begin(), rest.end());
  const auto first = world.add(greedy(shared, 5));
  const auto waiting = world.add(greedy(long_prompt, 5));
  std::vector<std::shared_ptr<Recorder>> endless;
  for (size_t i = 0; i < 5; ++i) endless.push_back(world.add(greedy(tokens_of(10 + i, 100), 0)));
  while (waiting->tokens().empty()) {
    world.step();
    for (const auto& sink : endless) ASSERT_FALSE(sink->is_finished());
  }
  world.finish();
}

TEST_F(BatcherTest, WhereTheCacheIsFullTheRequestThatCameLastStepsBack) {
  World world = make(cluster_of(1, 640));  // 10 blocks
  std::vector<Ask> asks;
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (size_t i = 0; i < 3; ++i) {
    asks.push_back(greedy(tokens_of(i + 1, 20), 280));
    asks.back().sampling.seed = i;
    sinks.push_back(world.add(asks.back()));
  }
  const auto answered = [&] {
    std::vector<size_t> counts;
    for (const auto& sink : sinks) counts.push_back(sink->tokens().size());
    return counts;
  };
  auto before = answered();
  while (world.stats().preemptions == 0) {
    before = answered();
    world.step();
  }
  for (int i = 1; i <= 20; ++i) {
    EXPECT_EQ(answered(), (std::vector<size_t>{before[0] + i, before[1] + i, before[2]}));
    world.step();
  }
  EXPECT_EQ(world.stats().preemptions, 1U);
  world.finish();
  expect_answers(sinks, all_alone(cluster_of(1, 640), asks));
}

TEST_F(BatcherTest, ACancelledRequestEndsBeforeTheNextStep) {
  SchedulerOptions scheduler;
  scheduler.running_max = 2;
  World world = make(cluster_of(1, 2048), scheduler);
  const auto answering = world.add(greedy(tokens_of(1, 10), 500));
  const auto prompting = world.add(greedy(tokens_of(2, 900), 10));
  const auto queued = world.add(greedy(tokens_of(3, 10), 10));
  for (int i = 0; i < 3; ++i) world.step();
  ASSERT_GE(answering->tokens().size(), 2U);
  for (const RequestId id : {3, 2, 1}) world.batcher->cancel(id);
  world.batcher->cancel(2);
  world.batcher->cancel(99);
  EXPECT_TRUE(world.batcher->is_idle());
  for (const auto& sink : {answering, prompting, queued}) {
    const GenerationResult result = sink->wait();
    EXPECT_TRUE(result.status.is_ok());
    EXPECT_EQ(result.reason, StopReason::kCancelled);
  }
  EXPECT_EQ(world.stats().requests_cancelled, 3U);
  EXPECT_EQ(world.stats().kv_positions_used, 0U);
  EXPECT_EQ(answering->wait().generated_tokens, answering->tokens().size());

  // What was computed of the cancelled prompt is not lost.
  const auto again = world.add(greedy(tokens_of(2, 900), 1));
  world.finish();
  EXPECT_GT(again->wait().reused_tokens, 40U);
}

TEST_F(BatcherTest, ASinkEndsItsAnswer) {
  World world = make(cluster_of(1, 640));
  const auto sink = world.add(greedy(tokens_of(1, 10), 500),
                              [](const GeneratedToken& token) { return token.index < 4; });
  world.finish();
  EXPECT_EQ(sink->wait().reason, StopReason::kStopped);
  EXPECT_EQ(sink->tokens().size(), 5U);
}

TEST_F(BatcherTest, AFollowUpComputesOnlyWhatIsNew) {
  for (const uint32_t ranks : {1U, 2U}) {
    World world = make(cluster_of(ranks, 1024));
    const auto first = world.add(greedy(tokens_of(1, 150), 37));
    world.finish();
    EXPECT_EQ(first->wait().reused_tokens, 0U);
    const auto before = world.stats();
    const auto conversation = joined(joined(tokens_of(1, 150), first->tokens()), tokens_of(9, 11));
    const Ask next = greedy(conversation, 20);
    const auto second = world.add(next);
    world.finish();
    // All but the last token of the answer, which was never computed, from prompt and answer.
    EXPECT_EQ(second->wait().reused_tokens, 150U + 36);
    EXPECT_EQ(world.stats().prefill_tokens - before.prefill_tokens, 12U);
    EXPECT_EQ(world.stats().reused_tokens, 186U);

    SchedulerOptions without;
    without.prefix_cache = false;
    World other = make(cluster_of(ranks, 1024), without);
    const auto expected = other.add(next);
    other.finish();
    EXPECT_EQ(second->tokens(), expected->tokens());
    other.add(next);
    other.finish();
    EXPECT_EQ(other.stats().reused_tokens, 0U);
    EXPECT_EQ(other.stats().kv_positions_cached, 0U);
  }
}

TEST_F(BatcherTest, TheSamePromptAgainComputesItsLastTokenOnly) {
  World world = make(cluster_of(1, 1024));
  const Ask ask = greedy(tokens_of(1, 128), 8);  // two blocks exactly
  const auto first = world.add(ask);
  world.finish();
  const auto second = world.add(ask);
  world.finish();
  EXPECT_EQ(second->wait().reused_tokens, 127U);
  EXPECT_EQ(second->tokens(), first->tokens());
}

TEST_F(BatcherTest, RequestsAtOnceShareTheirPrompt) {
  World world = make(cluster_of(1, 1024));
  std::vector<std::shared_ptr<Recorder>> choices;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    Ask ask = greedy(tokens_of(1, 300), 30);
    ask.sampling.temperature = 1;
    ask.sampling.seed = seed;
    choices.push_back(world.add(ask));
  }
  world.finish();
  // Whole blocks of 64 that the first has computed: four of them hold 256 of the 300 tokens.
  EXPECT_EQ(world.stats().reused_tokens, 3U * 256);
  EXPECT_EQ(world.stats().preemptions, 0U);
  EXPECT_NE(choices[0]->tokens(), choices[1]->tokens());
}

TEST_F(BatcherTest, MemoryIsBoundedHoweverManyPromptsCome) {
  for (const uint32_t ranks : {1U, 2U}) {
    World world = make(cluster_of(ranks, 640));
    const size_t blocks = world.engine().blocks_total();
    for (size_t i = 0; i < 500; ++i) {
      const auto sink = world.add(greedy(tokens_of(i + 7, 20 + i % 90), 3));
      if (i % 5 == 4) world.finish();
      const SchedulerStats stats = world.stats();
      ASSERT_EQ(stats.kv_positions, blocks * 64);
      ASSERT_LE(stats.kv_positions_cached + stats.kv_positions_used, stats.kv_positions);
    }
    world.finish();
    EXPECT_EQ(world.stats().requests_finished, 500U);
    EXPECT_EQ(world.stats().kv_positions_used, 0U);
    const Ask last = greedy(tokens_of(3, 600), 40);
    const auto sink = world.add(last);
    world.finish();
    EXPECT_EQ(sink->tokens(), alone(make(cluster_of(ranks, 640)).engine(), last).tokens)
        << "the whole context is there for one request";
  }
}

TEST_F(BatcherTest, TheContextEndsAnAnswerButOtherRequestsDoNot) {
  const Ask longest = greedy(tokens_of(1, 100), 0);
  World alone_world = make(cluster_of(1, 320));
  const auto expected = alone_world.add(longest);
  alone_world.finish();
  EXPECT_EQ(expected->wait().reason, StopReason::kContextFull);
  EXPECT_EQ(expected->tokens().size(), 221U);

  World world = make(cluster_of(1, 320));
  std::vector<std::shared_ptr<Recorder>> sinks;
  sinks.reserve(4);
  for (int i = 0; i < 4; ++i) sinks.push_back(world.add(longest));
  const auto other = world.add(greedy(tokens_of(5, 300), 30));
  world.finish();
  for (const auto& sink : sinks) {
    EXPECT_EQ(sink->wait().reason, StopReason::kContextFull);
    EXPECT_EQ(sink->tokens(), expected->tokens());
  }
  EXPECT_EQ(other->wait().reason, StopReason::kContextFull);
  EXPECT_EQ(other->tokens().size(), 21U);
  EXPECT_GT(world.stats().preemptions, 0U);
}

TEST_F(BatcherTest, APromptAsLongAsTheContextHasOneToken) {
  World world = make(cluster_of(1, 320));
  const Ask full = greedy(tokens_of(1, 320), 0);
  for (int i = 0; i < 3; ++i) {  // the second and third find it cached, and nothing else is free
    const auto sink = world.add(full);
    world.finish();
    EXPECT_EQ(sink->wait().reason, StopReason::kContextFull);
    EXPECT_EQ(sink->tokens().size(), 1U);
  }
}

TEST_F(BatcherTest, TheSmallestChunkServesOneAtATime) {
  ClusterOptions options = cluster_of(1, 640);
  options.engine.prefill_chunk = 1;
  World world = make(options);
  const Ask ask = greedy(tokens_of(1, 70), 5);
  const auto first = world.add(ask);
  const auto second = world.add(greedy(tokens_of(2, 9), 5));
  world.step();
  EXPECT_EQ(world.stats().running, 1U);
  world.finish();
  EXPECT_EQ(second->tokens().size(), 5U);
  EXPECT_EQ(first->tokens(), alone(make(cluster_of(1, 640)).engine(), ask).tokens);
}

TEST_F(BatcherTest, ARequestThatFailsLeavesTheOthers) {
  RandomModel random;
  random.change = [](const std::string& name, std::vector<float>& values) {
    if (name == "token_embd.weight") values[5 * 64 + 3] = std::numeric_limits<float>::quiet_NaN();
  };
  const model::testing::TempFolder folder;
  model_ = random.make(folder);
  std::vector<TokenId> good = tokens_of(1, 40);
  std::replace(good.begin(), good.end(), 5, 6);
  Ask ask = greedy(good, 20);
  ask.sampling.banned = {5};
  for (const uint32_t ranks : {1U, 2U}) {
    World world = make(cluster_of(ranks, 640));
    const auto before = world.add(ask);
    world.step();
    const auto bad = world.add(greedy({1, 5, 2}, 20));
    const auto after = world.add(ask);
    world.finish();
    EXPECT_EQ(bad->wait().status.code(), StatusCode::kRequest);
    EXPECT_THAT(bad->wait().status.message(), HasSubstr("non-finite"));
    EXPECT_EQ(before->tokens().size(), 20U);
    EXPECT_EQ(after->tokens(), before->tokens());
    EXPECT_EQ(world.stats().requests_failed, 1U);
  }
}

TEST_F(BatcherTest, ABrokenGroupEndsEveryRequestWithItsCause) {
  ClusterOptions options = cluster_of(2, 640, 3);
  options.follower = [&](collective::Group& group, const plan::Plan& plan,
                         const EngineOptions& engine) -> Status {
    ASSIGN_OR_RETURN(const auto instance, RankInstance::create(*model_, plan, group, engine));
    for (int i = 0; i < 12; ++i) RETURN_IF_ERROR(instance->follow().status());
    return Status::request("gone");
  };
  World world = make(options);
  std::vector<std::shared_ptr<Recorder>> sinks;
  sinks.reserve(5);
  for (size_t i = 0; i < 5; ++i) sinks.push_back(world.add(greedy(tokens_of(i, 30), 200)));
  Status status;
  for (int i = 0; i < 100 && status.is_ok(); ++i) status = world.batcher->step();
  EXPECT_EQ(status.code(), StatusCode::kGroup);
  EXPECT_THAT(status.message(), HasSubstr("node-1"));
  EXPECT_TRUE(world.batcher->is_idle());
  for (const auto& sink : sinks) EXPECT_EQ(sink->wait().status.message(), status.message());
  EXPECT_GT(sinks[0]->tokens().size(), 0U);
  const auto late = world.add(greedy(tokens_of(1, 30), 2));
  EXPECT_FALSE(world.batcher->step().is_ok());
  EXPECT_EQ(late->wait().status.message(), status.message());
}

TEST_F(BatcherTest, WhatCanNeverBeMetIsRefused) {
  World world = make(cluster_of(1, 320));
  const auto refused = [&](const std::function<void(GenerationRequest&)>& change, const char* why) {
    GenerationRequest request;
    request.prompt = {1, 2, 3};
    request.sink = std::make_shared<Recorder>();
    EXPECT_TRUE(world.batcher->check(request).is_ok());
    change(request);
    const Status status = world.batcher->check(request);
    EXPECT_EQ(status.code(), StatusCode::kRequest);
    EXPECT_THAT(status.message(), HasSubstr(why));
  };
  refused([](auto& r) { r.prompt.clear(); }, "empty");
  refused([](auto& r) { r.prompt[1] = 200; }, "token 200");
  refused([](auto& r) { r.prompt[1] = -1; }, "token -1");
  refused([](auto& r) { r.end_tokens = {1000}; }, "token 1000");
  refused([](auto& r) { r.prompt.resize(321, 1); }, "321 tokens");
  refused([](auto& r) { r.logprobs_top = 21; }, "top_logprobs is 21");
  refused([](auto& r) { r.sampling.top_p = 2; }, "top_p");
  refused([](auto& r) { r.sink = nullptr; }, "sink");
}

// Any order of requests, cancellations and steps in a cache that is far too small.
class RandomTraffic : public BatcherTest, public ::testing::WithParamInterface<uint32_t> {};

TEST_P(RandomTraffic, EndsWithEveryBlockAccountedFor) {
  if (GetParam() > 0) use_repeating_model();
  SchedulerOptions scheduler;
  scheduler.draft_tokens = GetParam();
  World world = make(cluster_of(2, 384, 6), scheduler);
  std::mt19937 random(77);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (int round = 0; round < 150; ++round) {
    Ask ask = greedy(joined(tokens_of(random() % 2, random() % 200), tokens_of(random() % 50, 30)),
                     1 + random() % 250);
    if (random() % 3 == 0) ask.sampling.temperature = 1;
    if (random() % 3 != 0) sinks.push_back(world.add(ask));
    if (random() % 4 == 0 && world.last_id > 0) {
      world.batcher->cancel(world.last_id - random() % std::min<size_t>(5, world.last_id));
    }
    for (size_t i = random() % 20; i > 0; --i) world.step();
    const SchedulerStats stats = world.stats();
    ASSERT_EQ(
        stats.kv_positions_used + stats.kv_positions_cached + world.engine().blocks_free() * 64,
        stats.kv_positions);
  }
  world.finish();
  for (const auto& sink : sinks) EXPECT_TRUE(sink->wait().status.is_ok());
  const SchedulerStats stats = world.stats();
  EXPECT_EQ(stats.kv_positions_used, 0U);
  EXPECT_GT(stats.preemptions, 5U);
  EXPECT_GT(stats.reused_tokens, 1000U);
  EXPECT_EQ(stats.requests_finished, sinks.size());
  EXPECT_EQ(stats.accepted_tokens > 0, GetParam() > 0);
}

INSTANTIATE_TEST_SUITE_P(Drafted, RandomTraffic, ::testing::Values(0U, 3U, 16U));

// Each token but the `ends` leaves, divided by three, a remainder of one more than the one before;
// after `length` of them the answer is whole. Fails at token `fails_at`.
class Steps final : public TokenGrammar {
 public:
  struct Shape {
    size_t length = 20;
    size_t fails_at = SIZE_MAX;
    std::vector<TokenId> ends{};  // allowed from the third token on
  };
  explicit Steps(Shape shape) : shape_(std::move(shape)) {}

  std::unique_ptr<TokenConstraint> start() const override {
    return std::make_unique<State>(shape_);
  }

 private:
  class State final : public TokenConstraint {
   public:
    explicit State(const Shape& shape) : shape_(shape) {}
    Result<TokenMask> allowed() override {
      if (taken_ == shape_.fails_at) return Status::request("it cannot go on");
      words_.assign((kVocabulary + 31) / 32, 0);
      for (TokenId id = (before_ + 1) % 3; id < static_cast<TokenId>(kVocabulary); id += 3) {
        if (std::find(shape_.ends.begin(), shape_.ends.end(), id) == shape_.ends.end()) allow(id);
      }
      if (taken_ >= 3) {
        for (const TokenId id : shape_.ends) allow(id);
      }
      return TokenMask(words_);
    }
    Result<bool> accept(TokenId id) override {
      CHECK(TokenMask(words_).allows(id));
      before_ = id;
      return ++taken_ == shape_.length;
    }

   private:
    void allow(TokenId id) { words_[static_cast<size_t>(id) / 32] |= 1U << (id % 32); }
    const Shape shape_;
    std::vector<uint32_t> words_;
    TokenId before_ = 0;
    size_t taken_ = 0;
  };
  const Shape shape_;
};

std::shared_ptr<const TokenGrammar> steps(Steps::Shape shape) {
  return std::make_shared<Steps>(std::move(shape));
}

bool is_of_steps(const std::vector<TokenId>& tokens) {
  TokenId before = 0;
  for (const TokenId id : tokens) {
    if ((id - before + 3 * static_cast<TokenId>(kVocabulary)) % 3 != 1) return false;
    before = id;
  }
  return true;
}

TEST_F(BatcherTest, AGrammarDecidesWhatAnAnswerSaysAndWhenItIsWhole) {
  World world = make(cluster_of(2, 400));
  Ask ask = greedy(tokens_of(1, 20), 100);
  ask.grammar = steps({.length = 20});
  const auto whole = world.add(ask);
  ask.tokens_max = 20;
  const auto just_whole = world.add(ask);
  ask.tokens_max = 7;
  const auto cut = world.add(ask);
  ask.grammar = nullptr;
  const auto free = world.add(ask);
  world.finish();
  EXPECT_EQ(whole->tokens().size(), 20U);
  EXPECT_TRUE(is_of_steps(whole->tokens()));
  EXPECT_EQ(whole->wait().reason, StopReason::kEndOfGeneration);
  EXPECT_EQ(just_whole->wait().reason, StopReason::kEndOfGeneration);
  EXPECT_EQ(just_whole->tokens(), whole->tokens());
  EXPECT_EQ(cut->wait().reason, StopReason::kTokensMax);
  EXPECT_EQ(cut->tokens().size(), 7U);
  EXPECT_FALSE(is_of_steps(free->tokens()));
  EXPECT_EQ(world.stats().masks, 47U);
  EXPECT_GT(world.stats().mask_seconds, 0);
}

TEST_F(BatcherTest, AGrammarSaysWhereAnEndTokenMayCome) {
  World world = make(cluster_of(1, 400));
  Ask ask = greedy(tokens_of(1, 20), 100);
  ask.end_tokens = {7};
  ask.sampling.logit_bias = {{7, 90}};
  ask.grammar = steps({.length = 50, .ends = {7}});
  const auto sink = world.add(ask);
  world.finish();
  EXPECT_EQ(sink->wait().reason, StopReason::kEndOfGeneration);
  EXPECT_EQ(sink->tokens().size(), 3U);
}

TEST_F(BatcherTest, AGrammarThatCannotGoOnFailsItsRequestAlone) {
  World world = make(cluster_of(1, 400));
  Ask ask = greedy(tokens_of(1, 20), 30);
  ask.grammar = steps({.length = 50, .fails_at = 4});
  const auto failing = world.add(ask);
  ask.grammar = steps({.length = 10});
  const auto other = world.add(ask);
  world.finish();
  EXPECT_EQ(failing->wait().status.code(), StatusCode::kRequest);
  EXPECT_THAT(failing->wait().status.message(), HasSubstr("cannot go on"));
  EXPECT_EQ(failing->tokens().size(), 4U);
  EXPECT_EQ(other->tokens().size(), 10U);
}

// With penalties, log-probabilities, sampling, cached beginnings and too little room for all.
TEST_F(BatcherTest, C58AConstrainedAnswerIsTheSameAloneAndAmongOthers) {
  std::vector<Ask> asks = mixed_requests(10);
  for (size_t i = 0; i < asks.size(); ++i) {
    asks[i].tokens_max = 200;
    asks[i].end_tokens.clear();
    if (i % 3 != 2) asks[i].grammar = steps({.length = 120 + i});
  }
  std::vector<std::vector<TokenId>> alone;
  for (const Ask& ask : asks) {
    World world = make(cluster_of(2, 384));
    const auto sink = world.add(ask);
    world.finish();
    alone.push_back(sink->tokens());
  }
  World world = make(cluster_of(2, 384));
  std::vector<std::shared_ptr<Recorder>> sinks;
  sinks.reserve(asks.size());
  for (const Ask& ask : asks) sinks.push_back(world.add(ask));
  world.finish();
  for (size_t i = 0; i < asks.size(); ++i) {
    EXPECT_EQ(sinks[i]->tokens(), alone[i]) << i;
    EXPECT_TRUE(asks[i].grammar == nullptr || is_of_steps(sinks[i]->tokens())) << i;
  }
  EXPECT_GT(world.stats().preemptions, 0U);
}

}  // namespace
}  // namespace shoal::runtime

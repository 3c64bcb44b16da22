// The scheduler's thread: requests from any thread, its queue, its end.
#include "runtime/serve/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "runtime/rank/rank_instance.h"
#include "runtime/testing/local_cluster.h"
#include "runtime/testing/recorder.h"
#include "runtime/testing/requests.h"
#include "runtime/testing/test_model.h"

namespace shoal::runtime {
namespace {

using testing::ClusterOptions;
using ::testing::HasSubstr;
using testing::LocalCluster;
using testing::must;
using testing::RandomModel;
using testing::Recorder;
using testing::some_tokens;

constexpr std::chrono::seconds kLong{60};

GenerationRequest request_to(const std::shared_ptr<TokenSink>& sink, size_t prompt,
                             uint32_t tokens_max) {
  GenerationRequest request;
  request.prompt = some_tokens(prompt, 200);
  request.sampling.temperature = 0;
  request.tokens_max = tokens_max;
  request.sink = sink;
  return request;
}

class SchedulerTest : public ::testing::Test {
 protected:
  std::unique_ptr<Scheduler> make(LocalCluster& cluster, const SchedulerOptions& options = {}) {
    return must(Scheduler::create(cluster.engine(), options));
  }
  static ClusterOptions cluster_of(uint32_t ranks) {
    ClusterOptions options;
    options.ranks = ranks;
    options.context = 1024;
    options.engine.prefill_chunk = 64;
    return options;
  }

  const model::testing::TempFolder folder_;
  const std::unique_ptr<model::Model> model_ = RandomModel().make(folder_);
};

// A sink whose first token waits until the test lets it go on: the scheduler's thread stands.
class Gate {
 public:
  std::shared_ptr<Recorder> sink() {
    return std::make_shared<Recorder>([this](const GeneratedToken& token) {
      if (token.index == 0) {
        reached_.set_value();
        CHECK(open_.get_future().wait_for(kLong) == std::future_status::ready);
      }
      return true;
    });
  }
  void wait_until_reached() {
    CHECK(reached_.get_future().wait_for(kLong) == std::future_status::ready);
  }
  void open() { open_.set_value(); }

 private:
  std::promise<void> reached_;
  std::promise<void> open_;
};

TEST_F(SchedulerTest, ManyThreadsGetTheAnswersOfOne) {
  for (const uint32_t ranks : {1U, 2U}) {
    LocalCluster cluster(*model_, cluster_of(ranks));
    const auto scheduler = make(cluster);
    std::vector<std::vector<TokenId>> expected;
    for (size_t n = 0; n < 4; ++n) {
      const auto sink = std::make_shared<Recorder>();
      ASSERT_TRUE(scheduler->submit(request_to(sink, 10 + 40 * n, 20)).is_ok());
      EXPECT_EQ(sink->wait().reason, StopReason::kTokensMax);
      expected.push_back(sink->tokens());
    }
    std::vector<std::thread> threads;
    threads.reserve(4);
    std::atomic<int> wrong = 0;
    for (int thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&] {
        for (size_t round = 0; round < 8; ++round) {
          const auto sink = std::make_shared<Recorder>();
          const auto cancelled = std::make_shared<Recorder>();
          const auto id = scheduler->submit(request_to(cancelled, 90, 400));
          const auto kept = scheduler->submit(request_to(sink, 10 + 40 * (round % 4), 20));
          scheduler->cancel(id.value());
          if (!kept.is_ok() || !sink->wait().status.is_ok()) ++wrong;
          if (sink->tokens() != expected[round % 4]) ++wrong;
          if (cancelled->wait().reason != StopReason::kCancelled) ++wrong;
          if (scheduler->stats().kv_positions == 0) ++wrong;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    ASSERT_TRUE(scheduler->drain(Deadline::after(kLong)).is_ok());
    const SchedulerStats stats = scheduler->stats();
    EXPECT_EQ(stats.requests_submitted, 4U + 64);
    EXPECT_EQ(stats.requests_finished, 4U + 64);
    EXPECT_EQ(stats.requests_cancelled, 32U);
    EXPECT_EQ(stats.running, 0U);
    EXPECT_EQ(stats.queued, 0U);
  }
}

// Tokens and the logprob of each, as bits.
struct LoggedAnswer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  bool operator==(const LoggedAnswer&) const = default;
};

LoggedAnswer ask(Scheduler& scheduler, GenerationRequest request, size_t* reused) {
  const auto sink = std::make_shared<Recorder>();
  request.sink = sink;
  request.want_logprobs = true;
  CHECK(scheduler.submit(std::move(request)).is_ok());
  const GenerationResult result = sink->wait();
  CHECK_MSG(result.status.is_ok(), result.status.message().c_str());
  *reused = result.reused_tokens;
  return {sink->tokens(), sink->logprobs()};
}

// 3,000 tokens: without the cache, three times with it, and beside three others, which begin alike.
TEST_F(SchedulerTest, C58_ALongPromptIsAnsweredAlikeCachedOrNotAloneOrBesideOthers) {
  ClusterOptions options = cluster_of(2);
  options.context = 16384;
  const GenerationRequest request = request_to(nullptr, 3000, 16);
  LoggedAnswer expected;
  size_t reused = 0;
  for (const bool has_cache : {false, true}) {
    LocalCluster cluster(*model_, options);
    const auto scheduler = make(cluster, {.prefix_cache = has_cache});
    if (!has_cache) expected = ask(*scheduler, request, &reused);
    EXPECT_EQ(expected.tokens.size(), 16U);
    for (size_t run = 0; has_cache && run < 3; ++run) {
      EXPECT_EQ(ask(*scheduler, request, &reused), expected) << run;
      EXPECT_EQ(reused, run > 0 ? 2999U : 0U);
    }
  }
  for (const bool has_cache : {false, true}) {
    LocalCluster cluster(*model_, options);
    const auto scheduler = make(cluster, {.prefix_cache = has_cache});
    std::vector<std::shared_ptr<Recorder>> others;
    for (size_t n = 0; n < 3; ++n) {
      others.push_back(std::make_shared<Recorder>());
      ASSERT_TRUE(scheduler->submit(request_to(others.back(), 20 + 90 * n, 3000)).is_ok());
    }
    EXPECT_EQ(ask(*scheduler, request, &reused), expected) << "cache " << has_cache;
    for (const auto& other : others) {
      EXPECT_FALSE(other->is_finished());
      EXPECT_GE(other->tokens().size(), 16U);
    }
  }
}

TEST_F(SchedulerTest, AFullQueueSaysBusyAndHasRoomAgainLater) {
  LocalCluster cluster(*model_, cluster_of(1));
  SchedulerOptions options;
  options.queue_max = 2;
  const auto scheduler = make(cluster, options);
  Gate gate;
  const auto first = gate.sink();
  ASSERT_TRUE(scheduler->submit(request_to(first, 5, 3)).is_ok());
  gate.wait_until_reached();
  std::vector<std::shared_ptr<Recorder>> waiting;
  size_t taken = 0;
  Result<RequestId> last = Status::request("none yet");
  for (int i = 0; i < 4; ++i) {
    waiting.push_back(std::make_shared<Recorder>());
    last = scheduler->submit(request_to(waiting.back(), 5, 3));
    if (!last.is_ok()) break;
    ++taken;
  }
  // The first may still count as waiting: its step is not over.
  EXPECT_GE(taken, 1U);
  EXPECT_LE(taken, 2U);
  EXPECT_EQ(last.status().code(), StatusCode::kBusy);
  EXPECT_THAT(last.status().message(), HasSubstr("waiting"));
  EXPECT_EQ(scheduler->stats().requests_refused, 1U);
  EXPECT_GE(scheduler->stats().retry_after_seconds, 1);
  gate.open();
  for (size_t i = 0; i < taken; ++i) EXPECT_TRUE(waiting[i]->wait().status.is_ok());
  EXPECT_FALSE(waiting.back()->is_finished()) << "nobody calls a refused request's sink";
  const auto again = std::make_shared<Recorder>();
  ASSERT_TRUE(scheduler->submit(request_to(again, 5, 3)).is_ok());
  EXPECT_TRUE(again->wait().status.is_ok());
}

TEST_F(SchedulerTest, ASinkMaySubmitAndCancel) {
  LocalCluster cluster(*model_, cluster_of(1));
  const auto scheduler = make(cluster);
  const auto second = std::make_shared<Recorder>();
  std::atomic<RequestId> own = 0;
  const auto first = std::make_shared<Recorder>([&](const GeneratedToken& token) {
    if (token.index == 2) {
      CHECK(scheduler->submit(request_to(second, 9, 4)).is_ok());
      scheduler->cancel(own);
    }
    return true;
  });
  Gate gate;
  ASSERT_TRUE(scheduler->submit(request_to(gate.sink(), 5, 3)).is_ok());
  gate.wait_until_reached();
  own = scheduler->submit(request_to(first, 9, 500)).value();
  gate.open();
  EXPECT_EQ(first->wait().reason, StopReason::kCancelled);
  EXPECT_EQ(first->tokens().size(), 3U) << "within one step";
  EXPECT_EQ(second->wait().generated_tokens, 4U);
}

TEST_F(SchedulerTest, DrainLetsRequestsEndAndTakesNoNewOnes) {
  LocalCluster cluster(*model_, cluster_of(1));
  const auto scheduler = make(cluster);
  std::vector<std::shared_ptr<Recorder>> sinks;
  for (int i = 0; i < 5; ++i) {
    sinks.push_back(std::make_shared<Recorder>());
    ASSERT_TRUE(scheduler->submit(request_to(sinks.back(), 30, 30)).is_ok());
  }
  EXPECT_TRUE(scheduler->drain(Deadline::after(kLong)).is_ok());
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->is_finished());
    EXPECT_EQ(sink->tokens().size(), 30U);
  }
  const auto late = scheduler->submit(request_to(sinks[0], 30, 30));
  EXPECT_EQ(late.status().code(), StatusCode::kBusy);
  EXPECT_THAT(late.status().message(), HasSubstr("shutting down"));
}

TEST_F(SchedulerTest, DrainCutsOffWhatItsDeadlineLeaves) {
  LocalCluster cluster(*model_, cluster_of(1));
  const auto scheduler = make(cluster);
  Gate gate;
  const auto sink = gate.sink();
  ASSERT_TRUE(scheduler->submit(request_to(sink, 30, 900)).is_ok());
  gate.wait_until_reached();
  auto drained = std::async(std::launch::async, [&] {
    return scheduler->drain(Deadline::after(std::chrono::milliseconds(1)));
  });
  drained.wait_for(std::chrono::milliseconds(50));
  gate.open();
  EXPECT_EQ(drained.get().code(), StatusCode::kBusy);
  ASSERT_TRUE(sink->is_finished());
  EXPECT_EQ(sink->wait().status.code(), StatusCode::kBusy);
  EXPECT_LT(sink->tokens().size(), 900U);
}

TEST_F(SchedulerTest, TheDestructorEndsEveryRequest) {
  LocalCluster cluster(*model_, cluster_of(2));
  std::vector<std::shared_ptr<Recorder>> sinks;
  {
    const auto scheduler = make(cluster);
    for (int i = 0; i < 20; ++i) {
      sinks.push_back(std::make_shared<Recorder>());
      ASSERT_TRUE(scheduler->submit(request_to(sinks.back(), 30, 900)).is_ok());
    }
  }
  for (const auto& sink : sinks) {
    ASSERT_TRUE(sink->is_finished());
    EXPECT_EQ(sink->wait().status.code(), StatusCode::kBusy);
  }
  // The engine is free again.
  EXPECT_EQ(
      testing::answer(cluster.engine(), some_tokens(9, 200), testing::greedy(3)).tokens.size(), 3U);
}

TEST_F(SchedulerTest, ABrokenGroupIsWhatEveryLaterRequestHears) {
  ClusterOptions options = cluster_of(2);
  options.follower = [&](collective::Group& group, const plan::Plan& plan,
                         const EngineOptions& engine) -> Status {
    ASSIGN_OR_RETURN(const auto instance, RankInstance::create(*model_, plan, group, engine));
    for (int i = 0; i < 10; ++i) RETURN_IF_ERROR(instance->follow().status());
    return Status::request("gone");
  };
  LocalCluster cluster(*model_, options);
  const auto scheduler = make(cluster);
  const auto sink = std::make_shared<Recorder>();
  ASSERT_TRUE(scheduler->submit(request_to(sink, 30, 500)).is_ok());
  EXPECT_EQ(sink->wait().status.code(), StatusCode::kGroup);
  ASSERT_TRUE(scheduler->drain(Deadline::after(kLong)).is_ok());
  const auto late = scheduler->submit(request_to(sink, 30, 500));
  EXPECT_EQ(late.status().message(), sink->wait().status.message());
}

TEST_F(SchedulerTest, APeerThatGoesWhileNothingRunsIsNoticed) {
  std::promise<void> leave;
  ClusterOptions options = cluster_of(2);
  options.follower = [&](collective::Group& group, const plan::Plan& plan,
                         const EngineOptions& engine) -> Status {
    ASSIGN_OR_RETURN(const auto instance, RankInstance::create(*model_, plan, group, engine));
    CHECK(leave.get_future().wait_for(kLong) == std::future_status::ready);
    return Status::request("gone");
  };
  LocalCluster cluster(*model_, options);
  const auto scheduler = make(cluster);
  EXPECT_TRUE(scheduler->health().is_ok());
  leave.set_value();
  const Deadline deadline = Deadline::after(kLong);
  while (scheduler->health().is_ok() && !deadline.expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_EQ(scheduler->health().code(), StatusCode::kGroup);
  EXPECT_THAT(scheduler->health().message(), HasSubstr("node-1"));
  const auto late = scheduler->submit(request_to(std::make_shared<Recorder>(), 30, 500));
  EXPECT_EQ(late.status().message(), scheduler->health().message());
}

TEST_F(SchedulerTest, OptionsOutOfRangeAreRefused) {
  LocalCluster cluster(*model_, cluster_of(1));
  SchedulerOptions options;
  options.queue_max = 0;
  EXPECT_FALSE(Scheduler::create(cluster.engine(), options).is_ok());
  options = {};
  options.step_target = Nanoseconds(0);
  EXPECT_FALSE(Scheduler::create(cluster.engine(), options).is_ok());
  const auto scheduler = make(cluster);
  EXPECT_EQ(scheduler->context(), 1024U);
  EXPECT_EQ(scheduler->token_count(), 200U);
  const auto refused = scheduler->submit({});
  EXPECT_EQ(refused.status().code(), StatusCode::kRequest);
}

}  // namespace
}  // namespace shoal::runtime

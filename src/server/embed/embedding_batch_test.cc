#include "server/embed/embedding_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <set>

#include "base/check.h"
#include "server/testing/scripted_generator.h"

namespace shoal::server {
namespace {

using ::testing::HasSubstr;

// What a receiver was told.
struct Told {
  std::mutex mutex;
  std::condition_variable changed;
  std::multiset<size_t> texts{};
  std::optional<ChoiceEnd> end{};

  ChoiceEnd wait() {
    std::unique_lock lock(mutex);
    CHECK(changed.wait_for(lock, std::chrono::seconds(10), [&] { return end.has_value(); }));
    return *end;
  }
};

class Receiver final : public EmbeddingReceiver {
 public:
  explicit Receiver(Told& told) : told_(told) {}
  void on_embedding(size_t text, std::vector<float> values) override {
    const std::lock_guard lock(told_.mutex);
    CHECK(!told_.end && values.front() == static_cast<float>(text + 1));
    told_.texts.insert(text);
  }
  void on_end(const ChoiceEnd& end) override {
    const std::lock_guard lock(told_.mutex);
    CHECK(!told_.end);
    told_.end = end;
    told_.changed.notify_all();
  }

 private:
  Told& told_;
};

struct Observed final : GenerationObserver {
  void on_first_token(double) override {}
  void on_next_token(double) override {}
  void on_end(const ChoiceEnd&) override {}
  void on_embedding_end(const ChoiceEnd& end) override { ++(end.has_broken_off() ? bad : good); }
  std::atomic<int> good{0}, bad{0};
};

class EmbeddingBatchTest : public ::testing::Test {
 protected:
  // Text number i has i + 1 tokens.
  Result<std::shared_ptr<EmbeddingBatch>> start(size_t texts) {
    std::vector<runtime::EmbeddingRequest> requests(texts);
    for (size_t i = 0; i < texts; ++i) requests[i].prompt.assign(i + 1, 7);
    return EmbeddingBatch::start(
        {.generator = generator_, .workers = *workers_, .observer = observed_}, std::move(requests),
        std::make_unique<Receiver>(told_));
  }

  ScriptedGenerator generator_{300};
  Observed observed_;
  Told told_;
  std::unique_ptr<Workers> workers_ = std::move(Workers::start(1)).value();
};

TEST_F(EmbeddingBatchTest, EveryTextIsGivenOnceAndTheTokensAreCounted) {
  ASSERT_TRUE(start(50).is_ok());
  const ChoiceEnd end = told_.wait();
  EXPECT_FALSE(end.has_broken_off());
  EXPECT_EQ(end.prompt_tokens, 50U * 51 / 2);
  EXPECT_EQ(told_.texts.size(), 50U);
  EXPECT_EQ(std::set<size_t>(told_.texts.begin(), told_.texts.end()).size(), 50U);
  EXPECT_EQ(observed_.good, 50);
}

TEST_F(EmbeddingBatchTest, NoMoreThanAFewAreInTheSchedulerAtOnce) {
  generator_.hold_embeddings();
  ASSERT_TRUE(start(EmbeddingBatch::kAtOnceMax + 5).is_ok());
  EXPECT_EQ(generator_.embeddings().size(), EmbeddingBatch::kAtOnceMax);
  generator_.end_embedding(3);
  EXPECT_EQ(generator_.embeddings().size(), EmbeddingBatch::kAtOnceMax + 1);
  EXPECT_EQ(generator_.embeddings().back().prompt.size(), EmbeddingBatch::kAtOnceMax + 1);
  for (size_t i = 0; i < EmbeddingBatch::kAtOnceMax + 5; ++i) {
    if (i != 3) generator_.end_embedding(i);
  }
  EXPECT_FALSE(told_.wait().has_broken_off());
}

TEST_F(EmbeddingBatchTest, AFullQueueIsWaitedForWhileATextRuns) {
  generator_.hold_embeddings();
  generator_.refuse_after(2, Status::busy("full"));
  ASSERT_TRUE(start(4).is_ok());
  EXPECT_EQ(generator_.embeddings().size(), 2U);
  generator_.refuse_after(2, Status::busy("full"));
  generator_.end_embedding(0);
  EXPECT_EQ(generator_.embeddings().size(), 4U);
  EXPECT_EQ(generator_.embeddings()[2].prompt.size(), 3U) << "the one that was refused";
  for (size_t i = 1; i < 4; ++i) generator_.end_embedding(i);
  EXPECT_FALSE(told_.wait().has_broken_off());
  EXPECT_EQ(told_.texts.size(), 4U);
}

TEST_F(EmbeddingBatchTest, WhatIsRefusedAtOnceIsAnErrorAndNobodyIsTold) {
  generator_.refuse_after(0, Status::busy("full"));
  EXPECT_EQ(start(4).status().code(), StatusCode::kBusy);
  generator_.refuse_after(2, Status::request("bad"));
  generator_.hold_embeddings();
  EXPECT_EQ(start(4).status().message(), "bad");
  EXPECT_EQ(observed_.bad, 2) << "those that were taken are ended";
  workers_ = nullptr;
  EXPECT_FALSE(told_.end.has_value());
}

TEST_F(EmbeddingBatchTest, ARefusalThatNothingMendsEndsTheBatch) {
  generator_.hold_embeddings();
  generator_.refuse_after(1, Status::busy("full"));
  ASSERT_TRUE(start(3).is_ok());
  generator_.end_embedding(0);
  const ChoiceEnd end = told_.wait();
  EXPECT_EQ(end.reason, FinishReason::kFailed);
  EXPECT_EQ(end.status.code(), StatusCode::kBusy);
  EXPECT_EQ(told_.texts.size(), 1U);
}

TEST_F(EmbeddingBatchTest, AFailureEndsTheOthersAndTheFirstCauseIsTold) {
  generator_.hold_embeddings();
  ASSERT_TRUE(start(30).is_ok());
  generator_.end_embedding(2, Status::request("non-finite hidden states"));
  const ChoiceEnd end = told_.wait();
  EXPECT_EQ(end.reason, FinishReason::kFailed);
  EXPECT_THAT(end.status.message(), HasSubstr("non-finite"));
  EXPECT_EQ(observed_.bad, static_cast<int>(EmbeddingBatch::kAtOnceMax));
  EXPECT_EQ(generator_.embeddings().size(), EmbeddingBatch::kAtOnceMax) << "no more is submitted";
}

TEST_F(EmbeddingBatchTest, AClientThatGoesEndsAll) {
  generator_.hold_embeddings();
  const auto batch = start(30);
  ASSERT_TRUE(batch.is_ok());
  generator_.end_embedding(0);
  (*batch)->cancel();
  EXPECT_EQ(told_.wait().reason, FinishReason::kCancelled);
  EXPECT_EQ(observed_.good, 1);
  EXPECT_EQ(generator_.embeddings().size(), EmbeddingBatch::kAtOnceMax + 1);
}

}  // namespace
}  // namespace shoal::server

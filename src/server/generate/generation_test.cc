#include "server/generate/generation.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <future>

#include "server/testing/scripted_generator.h"
#include "server/testing/word_tokenizer.h"

namespace shoal::server {
namespace {

// What a receiver was told, kept apart from it: the generation owns the receiver.
struct Told {
  std::mutex mutex{};
  std::condition_variable changed{};
  std::vector<std::string> texts{};
  std::vector<ChoiceEnd> ends{};
  bool has_started = false;
  bool has_ended = false;
  std::atomic<size_t> room{SIZE_MAX};  // bytes of the first choice's text

  template <typename Condition>
  void wait(const Condition& condition) {
    std::unique_lock lock(mutex);
    CHECK_MSG(changed.wait_for(lock, std::chrono::seconds(10), condition), "waited in vain");
  }
  void wait_for_end() {
    wait([this] { return has_ended; });
  }
  void wait_for_text(const std::string& text) {
    wait([this, &text] { return texts[0] == text; });
  }
  size_t size() {
    const std::lock_guard lock(mutex);
    return texts[0].size();
  }
};

class Receiver final : public AnswerReceiver {
 public:
  explicit Receiver(Told& told) : told_(told) {}
  bool has_room() const override { return told_.size() < told_.room.load(); }
  void on_started() override {
    const std::lock_guard lock(told_.mutex);
    CHECK(!told_.has_started);
    told_.has_started = true;
  }
  void on_piece(size_t choice, AnswerPiece piece) override {
    const std::lock_guard lock(told_.mutex);
    CHECK(told_.has_started && !told_.has_ended);
    told_.texts.at(choice) += piece.text;
    told_.changed.notify_all();
  }
  void on_choice_end(size_t choice, const ChoiceEnd& end) override {
    const std::lock_guard lock(told_.mutex);
    told_.ends.at(choice) = end;
  }
  void on_all_ended() override {
    const std::lock_guard lock(told_.mutex);
    CHECK(!told_.has_ended);
    told_.has_ended = true;
    told_.changed.notify_all();
  }

 private:
  Told& told_;
};

struct Observed final : GenerationObserver {
  void on_first_token(double) override { ++first; }
  void on_next_token(double) override { ++next; }
  void on_end(const ChoiceEnd&) override { ++ends; }
  void on_embedding_end(const ChoiceEnd&) override { ++ends; }
  std::atomic<int> first{0}, next{0}, ends{0};
};

class GenerationTest : public ::testing::Test {
 protected:
  Result<std::shared_ptr<Generation>> start(size_t choices,
                                            const std::vector<std::string>& stops = {}) {
    told_.texts.resize(choices);
    told_.ends.resize(choices);
    std::vector<Choice> list(choices);
    for (Choice& choice : list) {
      choice.request.prompt = {1};
      choice.stops = stops;
    }
    return Generation::start({.generator = generator_,
                              .tokenizer = *tokenizer_,
                              .workers = *workers_,
                              .observer = observed_},
                             std::move(list), std::make_unique<Receiver>(told_));
  }

  // The text thread has seen all that came once a task posted behind it has run.
  void wait_for_worker() {
    std::promise<void> has_run;
    workers_->post([&] { has_run.set_value(); });
    has_run.get_future().wait();
  }

  std::unique_ptr<text::Tokenizer> tokenizer_ = make_word_tokenizer({"▁one", "▁two", "END"});
  int32_t one_ = word_token(0), two_ = word_token(1), end_ = word_token(2);
  ScriptedGenerator generator_{300};
  Observed observed_;
  Told told_;
  std::unique_ptr<Workers> workers_ = std::move(Workers::start(1)).value();
};

TEST_F(GenerationTest, GivesTextAsItsTokensComeAndTheEnd) {
  ASSERT_TRUE(start(1).is_ok());
  EXPECT_TRUE(generator_.give(0, one_));
  told_.wait_for_text(" one");
  EXPECT_TRUE(generator_.give(0, two_));
  told_.wait_for_text(" one two");
  generator_.finish(0, runtime::StopReason::kTokensMax);
  told_.wait_for_end();
  EXPECT_EQ(told_.ends[0].reason, FinishReason::kLength);
  EXPECT_EQ(told_.ends[0].tokens, 2U);
  EXPECT_EQ(told_.ends[0].prompt_tokens, 1U);
  EXPECT_EQ(observed_.first, 1);
  EXPECT_EQ(observed_.next, 1);
  EXPECT_EQ(observed_.ends, 1);
}

TEST_F(GenerationTest, AStopStringEndsTheSchedulersWorkAndTheCount) {
  ASSERT_TRUE(start(1, {"END"}).is_ok());
  generator_.give(0, one_);
  generator_.give(0, end_);
  const Deadline deadline = Deadline::after(std::chrono::seconds(10));
  while (!generator_.was_cancelled(0)) ASSERT_FALSE(deadline.expired());
  EXPECT_FALSE(generator_.give(0, two_));
  generator_.finish(0, runtime::StopReason::kCancelled);
  told_.wait_for_end();
  EXPECT_EQ(told_.texts[0], " one");
  EXPECT_EQ(told_.ends[0].reason, FinishReason::kStop);
  EXPECT_EQ(told_.ends[0].stop, "END");
  EXPECT_EQ(told_.ends[0].tokens, 2U);
}

TEST_F(GenerationTest, AReaderWithoutRoomGetsEverythingOnceItHasSome) {
  told_.room = 0;
  const auto generation = start(1);
  ASSERT_TRUE(generation.is_ok());
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(generator_.give(0, one_));
  generator_.finish(0, runtime::StopReason::kEndOfGeneration);
  wait_for_worker();
  EXPECT_EQ(told_.size(), 0U);
  told_.room = SIZE_MAX;
  (*generation)->resume();
  told_.wait_for_end();
  EXPECT_EQ(told_.texts[0].size(), 400U);
  EXPECT_EQ(told_.ends[0].tokens, 100U);
}

TEST_F(GenerationTest, WhatHasWaitedIsGivenOnlyAsFarAsThereIsRoom) {
  told_.room = 0;
  const auto generation = start(1);
  ASSERT_TRUE(generation.is_ok());
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(generator_.give(0, one_));
  generator_.finish(0, runtime::StopReason::kEndOfGeneration);
  for (size_t room = 1000; room < 4000; room += 1000) {
    told_.room = room;
    (*generation)->resume();
    wait_for_worker();
    EXPECT_GE(told_.size(), room);
    EXPECT_LT(told_.size(), room + 100);
    EXPECT_FALSE(told_.has_ended);
  }
  told_.room = SIZE_MAX;
  (*generation)->resume();
  told_.wait_for_end();
  EXPECT_EQ(told_.texts[0].size(), 4000U);
  EXPECT_EQ(told_.ends[0].tokens, 1000U);
}

TEST_F(GenerationTest, AClientThatGoesCancelsEveryChoice) {
  const auto generation = start(3);
  ASSERT_TRUE(generation.is_ok());
  generator_.give(1, one_);
  generator_.finish(1, runtime::StopReason::kEndOfGeneration);
  (*generation)->cancel();
  EXPECT_TRUE(generator_.was_cancelled(0));
  EXPECT_FALSE(generator_.was_cancelled(1));
  EXPECT_TRUE(generator_.was_cancelled(2));
  EXPECT_FALSE(generator_.give(0, one_));
  generator_.finish(0, runtime::StopReason::kCancelled);
  generator_.finish(2, runtime::StopReason::kCancelled);
  told_.wait_for_end();
  EXPECT_EQ(told_.ends[0].reason, FinishReason::kCancelled);
}

TEST_F(GenerationTest, AChoiceThatIsRefusedTakesTheOthersWithIt) {
  generator_.refuse_after(1, Status::busy("the queue is full"));
  const auto generation = start(2);
  ASSERT_FALSE(generation.is_ok());
  EXPECT_EQ(generation.status().code(), StatusCode::kBusy);
  EXPECT_TRUE(generator_.was_cancelled(0));
  generator_.finish(0, runtime::StopReason::kCancelled);
  workers_ = nullptr;
  EXPECT_FALSE(told_.has_started);
}

TEST_F(GenerationTest, AFailureIsGivenWithItsStatus) {
  ASSERT_TRUE(start(1).is_ok());
  generator_.give(0, one_);
  generator_.fail(0, Status::group("rank 1 left"));
  told_.wait_for_end();
  EXPECT_EQ(told_.ends[0].reason, FinishReason::kFailed);
  EXPECT_EQ(told_.ends[0].status.message(), "rank 1 left");
  EXPECT_EQ(told_.texts[0], " one");
}

TEST_F(GenerationTest, ABadStopStringIsRefusedBeforeAnythingRuns) {
  EXPECT_FALSE(start(1, {""}).is_ok());
  EXPECT_TRUE(generator_.requests(0).empty());
}

}  // namespace
}  // namespace shoal::server

#include "tensor/machine/step_clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "tensor/threads.h"

namespace shoal::tensor {
namespace {

uint64_t sum_of(const PhaseTicks& totals) {
  uint64_t sum = 0;
  for (const auto& stage : totals) sum = std::accumulate(stage.begin(), stage.end(), sum);
  return sum;
}

void pass_time() {
  const uint64_t start = read_ticks();
  while (read_ticks() - start < 1000) {
  }
}

TEST(StepClock, EveryTickCountsForExactlyOnePhase) {
  const uint64_t before = read_ticks();
  StepClock clock;
  const uint64_t begin = read_ticks();
  clock.enter(Phase::kMatmul);
  pass_time();
  {
    const PhaseScope scope(clock, Phase::kBarrier);
    pass_time();
  }
  EXPECT_EQ(clock.enter(Phase::kIdle), Phase::kMatmul) << "the scope goes back";
  const uint64_t end = read_ticks();
  const PhaseTicks totals = clock.take_totals();
  EXPECT_GE(totals[0][static_cast<size_t>(Phase::kMatmul)], 1000U);
  EXPECT_GE(totals[0][static_cast<size_t>(Phase::kBarrier)], 1000U);
  EXPECT_EQ(totals[0][static_cast<size_t>(Phase::kAttention)], 0U);
  EXPECT_GE(sum_of(totals), end - begin);
  EXPECT_LE(sum_of(totals), read_ticks() - before);
}

TEST(StepClock, ACounterThatGoesBackCountsForNothingUntilItIsAheadAgain) {
  StepClock clock;
  const uint64_t start = read_ticks() + 1'000'000'000;
  clock.enter_at(start, Phase::kMatmul);
  clock.record(4);
  clock.take_totals();
  clock.enter_at(start - 500, Phase::kAttention);
  clock.enter_at(start + 20, Phase::kMatmul);
  clock.enter_at(0, Phase::kIdle);
  const PhaseTicks totals = clock.take_totals();
  EXPECT_EQ(totals[0][static_cast<size_t>(Phase::kMatmul)], 0U);
  EXPECT_EQ(totals[0][static_cast<size_t>(Phase::kAttention)], 20U);
  const Recording recording = clock.take_recording();
  ASSERT_EQ(recording.stretches.size(), 1U);
  EXPECT_EQ(recording.stretches[0].begin, start);
  EXPECT_EQ(recording.stretches[0].end, start + 20);
}

TEST(StepClock, StagesAreCountedApartAndTakingClears) {
  StepClock clock;
  clock.set_stage(Stage::kDecode);
  clock.enter(Phase::kSampling);
  pass_time();
  const PhaseTicks first = clock.take_totals();
  EXPECT_GE(first[1][static_cast<size_t>(Phase::kSampling)], 1000U);
  EXPECT_EQ(first[0][static_cast<size_t>(Phase::kSampling)], 0U);
  clock.enter(Phase::kIdle);
  clock.take_totals();
  EXPECT_EQ(clock.take_totals()[1][static_cast<size_t>(Phase::kSampling)], 0U);
}

TEST(StepClock, ARecordingKeepsStretchesInOrderAndCountsWhatDoesNotFit) {
  StepClock clock;
  clock.enter(Phase::kMatmul);
  clock.record(3);
  clock.set_layer(7);
  pass_time();
  clock.enter(Phase::kIdle);
  pass_time();
  clock.enter(Phase::kAttention);
  clock.leave_layers();
  pass_time();
  clock.enter(Phase::kInputs);
  pass_time();
  clock.enter(Phase::kSampling);
  pass_time();
  const Recording recording = clock.take_recording();
  ASSERT_EQ(recording.stretches.size(), 3U);
  EXPECT_EQ(recording.dropped, 1U);
  EXPECT_EQ(recording.stretches[0].phase, Phase::kMatmul);
  EXPECT_EQ(recording.stretches[0].layer, 7);
  EXPECT_EQ(recording.stretches[1].phase, Phase::kAttention) << "idle time is left out";
  EXPECT_EQ(recording.stretches[1].layer, Stretch::kNoLayer);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_LT(recording.stretches[i].begin, recording.stretches[i].end);
    if (i > 0) {
      EXPECT_LE(recording.stretches[i - 1].end, recording.stretches[i].begin);
    }
  }
  clock.enter(Phase::kMatmul);
  EXPECT_TRUE(clock.take_recording().stretches.empty()) << "nothing is kept after the end";
}

TEST(Ticks, TheScaleMapsBothItsPointsOntoTheirTimes) {
  const TickPoint first{1000, Nanoseconds(5000)};
  const TickPoint second{3000, Nanoseconds(6000)};
  const TickScale scale(first, second);
  EXPECT_DOUBLE_EQ(scale.seconds(2000), 1e-6);
  EXPECT_EQ(scale.time_of(3000), Nanoseconds(6000));
  EXPECT_EQ(scale.time_of(1000), Nanoseconds(5000));
  EXPECT_EQ(scale.time_of(5000), Nanoseconds(7000));
}

TEST(Ticks, ACounterThatStoodStillOrWentBackHasNoRate) {
  const TickPoint first{3000, Nanoseconds(5000)};
  for (const uint64_t ticks : {uint64_t{3000}, uint64_t{1}}) {
    const TickScale scale(first, {ticks, Nanoseconds(6000)});
    EXPECT_EQ(scale.seconds(uint64_t{1} << 40), 0);
    EXPECT_EQ(scale.time_of(3000), Nanoseconds(6000));
  }
}

TEST(Ticks, TimesFarAwayAreBounded) {
  const TickScale scale({1000, Nanoseconds(0)}, {1001, Nanoseconds(1'000'000'000'000)});
  const Nanoseconds later(1'000'000'000'000);
  EXPECT_EQ(scale.time_of(uint64_t{1} << 62), later + TickScale::kAwayMax);
  EXPECT_EQ(scale.time_of(1001 - (uint64_t{1} << 62)), later - TickScale::kAwayMax);
}

TEST(Ticks, TheCounterGoesOnWithTheClock) {
  const TickPoint first = TickPoint::now();
  while (SteadyClock::instance().now() - first.time < std::chrono::milliseconds(2)) {
  }
  const TickPoint second = TickPoint::now();
  EXPECT_GT(second.ticks, first.ticks);
  const TickScale scale(first, second);
  EXPECT_GE(scale.seconds(second.ticks - first.ticks), 0.002);
}

TEST(StepClock, WorkersCountTheirWaitingAtBarriers) {
  auto pool = std::move(WorkerPool::create({.workers = 2})).value();
  pool->run([](Worker& me) { me.clock().take_totals(); });
  std::array<PhaseTicks, 2> totals;
  pool->run([&](Worker& me) {
    me.clock().enter(Phase::kMatmul);
    // Again and again, as one may come late for once and then has not waited.
    for (int i = 0; i < 50; ++i) {
      if (me.is_first()) pass_time();
      me.barrier();
      if (!me.is_first()) pass_time();
      me.barrier(Phase::kCollective);
    }
    totals[static_cast<size_t>(me.index())] = me.clock().take_totals();
  });
  for (const PhaseTicks& worker : totals) {
    EXPECT_GT(worker[0][static_cast<size_t>(Phase::kMatmul)], 0U);
  }
  EXPECT_GT(totals[1][0][static_cast<size_t>(Phase::kBarrier)], 0U);
  EXPECT_GT(totals[0][0][static_cast<size_t>(Phase::kCollective)], 0U);
}

}  // namespace
}  // namespace shoal::tensor

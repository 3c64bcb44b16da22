#include "cli/bench/fabric/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

namespace shoal::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// All batches of a measurement whose rounds take so long each.
std::vector<Batch> batches_of(const Budget& budget, Nanoseconds round) {
  ManualClock clock;
  Pacer pacer(budget, clock);
  std::vector<Batch> batches;
  for (Batch batch = pacer.next(); batch.rounds > 0; batch = pacer.next()) {
    batches.push_back(batch);
    clock.advance(round * batch.rounds);
    if (batches.size() > 1000) break;
  }
  return batches;
}

uint64_t counted(const std::vector<Batch>& batches) {
  uint64_t rounds = 0;
  for (const Batch& batch : batches) rounds += batch.is_counted != 0 ? batch.rounds : 0;
  return rounds;
}

TEST(Pacer, ATimeIsFilledAndTheFirstBatchesWarmUp) {
  const auto batches = batches_of({.time = milliseconds(100)}, std::chrono::microseconds(1));
  EXPECT_EQ(batches.front().is_counted, 0U);
  EXPECT_EQ(batches.back().is_counted, 1U);
  EXPECT_GT(counted(batches), 80000U);
  EXPECT_LT(counted(batches), 110000U);
}

TEST(Pacer, WhatTakesLongerThanItsTimeIsStillMeasured) {
  const auto batches = batches_of({.time = milliseconds(1)}, std::chrono::seconds(1));
  EXPECT_EQ(batches.front().rounds, 1U);
  EXPECT_EQ(batches.size(), 3U);
  EXPECT_EQ(counted(batches), 2U);
}

TEST(Pacer, ABatchHasItsLeastRoundsHoweverLongTheyTake) {
  for (const Nanoseconds round : {Nanoseconds(milliseconds(40)), Nanoseconds(1000)}) {
    const auto batches = batches_of({.time = milliseconds(1), .batch_min = 20}, round);
    EXPECT_GE(batches.size(), 3U);
    for (const Batch& batch : batches) EXPECT_GE(batch.rounds, 20U);
  }
  for (const uint32_t rounds : {1U, 20U, 57U, 399U, 4000U}) {
    const auto batches = batches_of({.rounds = rounds, .batch_min = 20}, Nanoseconds(1));
    EXPECT_EQ(counted(batches), std::max(rounds, 20U));
    for (const Batch& batch : batches) EXPECT_GE(batch.rounds, 20U);
  }
}

TEST(Pacer, ABatchOfALongMeasurementIsShort) {
  const auto batches = batches_of({.time = std::chrono::hours(1)}, milliseconds(50));
  for (const Batch& batch : batches) EXPECT_LE(batch.rounds * milliseconds(50), seconds(4));
  EXPECT_EQ(batches.back().is_counted, 1U);
}

TEST(Pacer, ClocksThatStandStillEndTheWarmUp) {
  ManualClock clock;
  Pacer pacer({.time = milliseconds(1)}, clock);
  Batch batch = pacer.next();
  for (int i = 0; i < 100 && batch.is_counted == 0; ++i) batch = pacer.next();
  EXPECT_EQ(batch.rounds, Batch::kRoundsMax);
  EXPECT_EQ(batch.is_counted, 1U);
}

TEST(Pacer, RoundsAreExactWhereTheyAreGiven) {
  for (const uint32_t rounds : {1U, 20U, 57U, 2000U, 1U << 24U}) {
    const auto batches = batches_of({.rounds = rounds}, Nanoseconds(1));
    EXPECT_EQ(batches.front().is_counted, 0U);
    EXPECT_EQ(counted(batches), rounds);
  }
}

TEST(MeasurePlan, AnEmptyPlanHasAllOperationsAndDefaultSizes) {
  const MeasurePlan plan;
  for (const std::string_view operation : kOperations) EXPECT_TRUE(plan.has(operation));
  EXPECT_GT(plan.message_sizes().size(), 5U);
  for (const size_t bytes : plan.collective_sizes()) EXPECT_EQ(bytes % sizeof(float), 0U);
}

TEST(MeasurePlan, CollectivesAreOfWholeFloatsEachSizeOnce) {
  const MeasurePlan plan{.sizes = {1, 2, 4, 5, 64}};
  EXPECT_EQ(plan.message_sizes(), (std::vector<size_t>{1, 2, 4, 5, 64}));
  EXPECT_EQ(plan.collective_sizes(), (std::vector<size_t>{4, 8, 64}));
}

TEST(MeasurePlan, OnlyWhatIsAskedForIsMeasured) {
  const MeasurePlan plan{.operations = {"stream"}};
  EXPECT_TRUE(plan.has("stream"));
  EXPECT_FALSE(plan.has("round-trip"));
}

TEST(MeasurePlan, AStreamsBatchFillsTheSlotsSeveralTimes) {
  EXPECT_EQ(stream_batch_min(1, 2), 16U);
  EXPECT_EQ(stream_batch_min(64, 8), 32U);
  EXPECT_EQ(stream_batch_min(size_t{1} << 20U, 8), 32U);
  EXPECT_EQ(stream_batch_min(size_t{4} << 20U, 8), 8U);
  EXPECT_EQ(stream_batch_min(kMeasuredBytesMax, 8), 4U);
}

TEST(MeasurePlan, WhoWaitsForOthersHasThePatienceOfTheirWholeMeasurement) {
  EXPECT_GT(patience_of({.sizes = {64}, .seconds = 300}, 8), seconds(360));
  EXPECT_LT(patience_of({.sizes = {64}, .seconds = 300}, 8), seconds(370));
  // 100,000 round trips of 3 ms, the slowest that was seen.
  EXPECT_GT(patience_of({.sizes = {64}, .rounds = 100'000}, 8), seconds(360));
  // 20 round trips of 256 MiB at 20 MB/s.
  EXPECT_GT(patience_of({.sizes = {64, kMeasuredBytesMax}, .rounds = 20}, 8), seconds(60 + 540));
  EXPECT_LT(patience_of({}, 8), seconds(150));
  EXPECT_GT(message_patience(kMeasuredBytesMax), seconds(80));
}

TEST(MeasurePlan, TimeIsSharedAndLargeSizesGetFewerRounds) {
  EXPECT_EQ(budget_of({.seconds = 2}, 100, 64).time, milliseconds(20));
  EXPECT_GT(budget_of({.seconds = 2}, 0, 64).time, Nanoseconds(0));
  EXPECT_EQ(budget_of({.rounds = 1000}, 100, 65536).rounds, 1000U);
  EXPECT_EQ(budget_of({.rounds = 1000}, 100, 65537).rounds, 100U);
  EXPECT_EQ(budget_of({.rounds = 1000}, 100, size_t{16} << 20U).rounds, 20U);
}

}  // namespace
}  // namespace shoal::cli

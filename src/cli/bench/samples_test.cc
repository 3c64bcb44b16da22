#include "cli/bench/samples.h"

#include <gtest/gtest.h>

namespace shoal::cli {
namespace {

TEST(Samples, WithoutSamplesEverythingIsZero) {
  const Samples samples;
  const Summary summary = samples.summary();
  EXPECT_EQ(summary.count, 0U);
  EXPECT_EQ(summary.median, 0);
  EXPECT_EQ(summary.max, 0);
  EXPECT_EQ(samples.quantile(0.99), 0);
  EXPECT_EQ(samples.mean(), 0);
}

TEST(Samples, OneSampleIsItsOwnSummary) {
  Samples samples;
  samples.add(3.5);
  const Summary summary = samples.summary();
  EXPECT_EQ(summary.count, 1U);
  for (const double value : {summary.p10, summary.median, summary.p90, summary.p99, summary.max}) {
    EXPECT_EQ(value, 3.5);
  }
}

TEST(Samples, QuantilesAreSamplesAndInOrder) {
  Samples samples;
  for (int i = 100; i >= 0; --i) samples.add(i * i);
  const Summary summary = samples.summary();
  EXPECT_EQ(summary.p10, 10 * 10);
  EXPECT_EQ(summary.median, 50 * 50);
  EXPECT_EQ(summary.p90, 90 * 90);
  EXPECT_EQ(summary.p99, 99 * 99);
  EXPECT_EQ(summary.max, 100 * 100);
  EXPECT_EQ(samples.quantile(0.99), summary.p99);
}

TEST(Samples, ASingleOutlierIsTheMaximumAndNotTheMedian) {
  Samples samples;
  for (int i = 0; i < 9; ++i) samples.add(1);
  samples.add(1000);
  EXPECT_EQ(samples.summary().median, 1);
  EXPECT_EQ(samples.summary().max, 1000);
}

TEST(Samples, ASummaryCanBeScaled) {
  Samples samples;
  samples.add(2);
  samples.add(4);
  samples.add(6);
  const Summary half = samples.summary().times(0.5);
  EXPECT_EQ(half.count, 3U);
  EXPECT_EQ(half.median, 2);
  EXPECT_EQ(half.max, 3);
  EXPECT_EQ(half.to_json()["p99"], 3);
}

}  // namespace
}  // namespace shoal::cli

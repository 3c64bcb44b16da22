#include "cli/bench/fabric/link_bench.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "fabric/testing/thread_group.h"

namespace shoal::cli {
namespace {

using fabric::ThreadGroup;
using fabric::ThreadGroupOptions;
using std::chrono::milliseconds;
using std::chrono::seconds;

// What rank 0 gets; every rank has to succeed.
LinkFigures measured(ThreadGroup& group, const MeasurePlan& plan) {
  LinkFigures figures;
  const auto statuses = group.run([&](fabric::Fabric& fabric) -> Status {
    ASSIGN_OR_RETURN(LinkFigures mine, run_link_bench(fabric, plan, [](const MeasureStep&) {}));
    if (fabric.rank() == 0) figures = std::move(mine);
    return Status::ok();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.is_ok()) << status.message();
  return figures;
}

// Ranks in virtual time whose messages take so long, with four slots each way.
ThreadGroupOptions slow(int size, Nanoseconds delay) {
  ThreadGroupOptions options;
  options.maker = "sim";
  options.size = size;
  options.sim.delay_min = delay;
  options.sim.delay_max = delay;
  return options;
}

TEST(LinkBench, ARankWaitsAsLongAsTheOthersMeasure) {
  ThreadGroup group(slow(3, milliseconds(50)));
  const LinkFigures figures =
      measured(group, {.sizes = {64}, .operations = {"round-trip", "stream"}, .seconds = 600});
  EXPECT_EQ(figures.link, "sim");
  EXPECT_TRUE(figures.ports.empty());
  ASSERT_EQ(figures.pairs.size(), 3U);
  for (const PairFigures& pair : figures.pairs) {
    ASSERT_EQ(pair.round_trip.size(), 1U);
    EXPECT_NEAR(pair.round_trip[0].figure.median, 0.1, 0.001);
    // A share of 100 s; each batch is at most some seconds long.
    EXPECT_GT(pair.round_trip[0].figure.count, 800U);
    ASSERT_EQ(pair.stream.size(), 1U);
    EXPECT_GT(pair.stream[0].figure.count, 20U);
    EXPECT_NEAR(pair.stream[0].overall, pair.stream[0].figure.median,
                0.1 * pair.stream[0].figure.median);
  }
}

TEST(LinkBench, AStreamHasTheTimeThatItTakesWhileItMoves) {
  ThreadGroup group(slow(2, seconds(10)));
  const LinkFigures figures =
      measured(group, {.sizes = {64}, .operations = {"stream"}, .rounds = 400});
  ASSERT_EQ(figures.pairs.size(), 1U);
  ASSERT_EQ(figures.pairs[0].stream.size(), 1U);
  const MessageFigures& stream = figures.pairs[0].stream[0];
  EXPECT_EQ(stream.figure.count, 10U);  // batches of 40 messages: four each 20 s
  EXPECT_NEAR(stream.figure.median, 64 * 4 / 20.0, 2.0);
}

// One message at a time would be 100 in a second.
TEST(LinkBench, AStreamFillsTheSlotsHoweverShortItsTimeIs) {
  ThreadGroup group(slow(2, milliseconds(5)));
  const LinkFigures figures =
      measured(group, {.sizes = {1000}, .operations = {"stream"}, .seconds = 0.01});
  ASSERT_EQ(figures.pairs.size(), 1U);
  ASSERT_EQ(figures.pairs[0].stream.size(), 1U);
  EXPECT_GT(figures.pairs[0].stream[0].overall, 250 * 1000);
  EXPECT_LT(figures.pairs[0].stream[0].overall, 450 * 1000);
}

TEST(LinkBench, PollingRanksNeitherYieldNorSleep) {
  for (const bool is_polling : {false, true}) {
    ThreadGroup group({.maker = "tcp"});
    const MeasurePlan plan{
        .sizes = {64}, .operations = {"round-trip"}, .rounds = 20, .is_polling = is_polling};
    std::array<fabric::SpinPolicy, 2> spins;
    const auto statuses = group.run([&](fabric::Fabric& fabric) -> Status {
      RETURN_IF_ERROR(run_link_bench(fabric, plan, [](const MeasureStep&) {}).status());
      spins[static_cast<size_t>(fabric.rank())] = fabric.spin();
      return Status::ok();
    });
    for (const Status& status : statuses) EXPECT_TRUE(status.is_ok()) << status.message();
    for (const fabric::SpinPolicy& spin : spins) {
      EXPECT_EQ(spin.yield_for == Nanoseconds(0), is_polling);
      EXPECT_EQ(spin.pause_for >= seconds(1), is_polling);
    }
  }
}

TEST(LinkBench, TheFiguresOverRdmaNameThePort) {
  ThreadGroup group({.maker = "verbs_rc"});
  const LinkFigures figures =
      measured(group, {.sizes = {64}, .operations = {"round-trip"}, .rounds = 20});
  EXPECT_EQ(figures.link, "verbs");
  ASSERT_EQ(figures.ports.size(), 1U);
  EXPECT_EQ(figures.ports[0].device, "fake0");
  EXPECT_EQ(figures.ports[0].number, 1);
  EXPECT_EQ(figures.ports[0].gid_index, 3);
  EXPECT_GE(figures.ports[0].mtu, 1024U);
}

}  // namespace
}  // namespace shoal::cli

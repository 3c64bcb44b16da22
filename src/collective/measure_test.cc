#include "collective/measure.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "fabric/testing/thread_group.h"

namespace shoal::collective {
namespace {

using fabric::Fabric;
using fabric::ThreadGroup;

TEST(Measure, GivesOrderedFiguresForEveryKind) {
  ThreadGroup threads({.maker = "shm", .size = 3});
  const auto statuses = threads.run([](Fabric& fabric) -> Status {
    Group group(fabric);
    const MeasureOptions options{.bytes = 4096, .rounds = 20, .warm_up_rounds = 2};
    for (auto* measure : {measure_ping_pong, measure_all_reduce, measure_transfer}) {
      ASSIGN_OR_RETURN(const Timing timing, measure(group, options));
      EXPECT_EQ(timing.bytes, 4096);
      EXPECT_EQ(timing.rounds, 20);
      EXPECT_LE(timing.min_us, timing.p50_us);
      EXPECT_LE(timing.p50_us, timing.p99_us);
    }
    return Status::ok();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.is_ok()) << status.to_string();
}

TEST(Measure, RefusesWhatCannotBeMeasured) {
  auto fabric = fabric::make_single_fabric("alone");
  Group group(*fabric);
  EXPECT_FALSE(measure_ping_pong(group, {}).is_ok());
  EXPECT_FALSE(measure_all_reduce(group, {.bytes = 7}).is_ok());
}

}  // namespace
}  // namespace shoal::collective

#include "fabric/sim/sim_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/message.h"
#include "fabric/testing/thread_group.h"

namespace shoal::fabric {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using testing::HasSubstr;

// Sends messages round and round until something fails or `rounds` are over.
Status chatter(Fabric& fabric, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    std::vector<std::vector<std::byte>> received(static_cast<size_t>(fabric.size()));
    std::vector<Transfer> transfers;
    const auto mine = test_bytes(3000, static_cast<uint64_t>(round));
    for (int peer = 0; peer < fabric.size(); ++peer) {
      if (peer == fabric.rank()) continue;
      auto& buffer = received[static_cast<size_t>(peer)];
      buffer.resize(mine.size());
      transfers.push_back(
          {&fabric.endpoint(peer), std::span<const std::byte>(mine), std::span<std::byte>(buffer)});
    }
    RETURN_IF_ERROR(exchange(transfers, "chatter", test_wait(fabric)));
  }
  return Status::ok();
}

ThreadGroupOptions sim_options(int size, uint64_t seed) {
  ThreadGroupOptions options;
  options.maker = "sim";
  options.size = size;
  options.slots = {.payload_bytes = 1024, .count = 2};
  options.sim.seed = seed;
  options.sim.delay_min = microseconds(1);
  options.sim.delay_max = microseconds(500);
  return options;
}

TEST(SimNetwork, TheSameSeedTakesTheSameVirtualTime) {
  std::vector<Nanoseconds> times;
  for (const uint64_t seed : {uint64_t{1}, uint64_t{1}, uint64_t{2}}) {
    ThreadGroup group(sim_options(4, seed));
    for (const Status& status : group.run([](Fabric& fabric) { return chatter(fabric, 20); })) {
      EXPECT_TRUE(status.is_ok()) << status.to_string();
    }
    times.push_back(group.network()->clock().now());
  }
  EXPECT_EQ(times[0], times[1]);
  EXPECT_NE(times[0], times[2]);
}

TEST(SimNetwork, ACrashedRankIsNamedByAllOthersSoon) {
  ThreadGroup group(sim_options(4, 3));
  group.network()->crash_at(2, milliseconds(5));
  const auto statuses = group.run([](Fabric& fabric) { return chatter(fabric, 1'000'000); });
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(statuses[rank].code(), StatusCode::kGroup);
    if (rank != 2) EXPECT_THAT(statuses[rank].message(), HasSubstr("rank 2 (sim-2)"));
  }
  EXPECT_LT(group.network()->clock().now(), milliseconds(20));
}

TEST(SimNetwork, AStoppedRankIsNamedByAllOthersAfterTheSilence) {
  ThreadGroup group(sim_options(3, 4));
  group.network()->stop_at(1, milliseconds(5));
  const auto statuses = group.run([](Fabric& fabric) { return chatter(fabric, 1'000'000); });
  EXPECT_THAT(statuses[0].message(), HasSubstr("rank 1 (sim-1) over sim has been silent"));
  EXPECT_THAT(statuses[2].message(), HasSubstr("rank 1 (sim-1) over sim has been silent"));
  EXPECT_THAT(statuses[1].message(), HasSubstr("given up"));
  EXPECT_GE(group.network()->clock().now(), milliseconds(1200));
  EXPECT_LT(group.network()->clock().now(), milliseconds(1500));
}

TEST(SimNetwork, APartitionBreaksTheGroupOnBothSides) {
  ThreadGroup group(sim_options(4, 5));
  group.network()->partition_at({3}, milliseconds(2));
  const auto statuses = group.run([](Fabric& fabric) { return chatter(fabric, 1'000'000); });
  for (size_t rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(statuses[rank].message(), HasSubstr("rank 3 (sim-3)"));
  }
  EXPECT_EQ(statuses[3].code(), StatusCode::kGroup);
}

struct Corrupted {
  SimCorruption corruption;
  const char* message;
};

TEST(SimNetwork, ACorruptedHeaderBreaksTheGroupAndNamesTheSender) {
  for (const Corrupted& one :
       {Corrupted{SimCorruption::kMagic, "wrong magic"},
        Corrupted{SimCorruption::kEpoch, "another group epoch"},
        Corrupted{SimCorruption::kSequence, "sent slot number 2 where 1 was due"},
        Corrupted{SimCorruption::kLength, "the limit is"}}) {
    ThreadGroup group(sim_options(2, 6));
    group.network()->corrupt_next({.from = 0, .to = 1}, one.corruption);
    const auto statuses = group.run([](Fabric& fabric) { return chatter(fabric, 3); });
    EXPECT_THAT(statuses[1].message(), HasSubstr("rank 0 (sim-0)"));
    EXPECT_THAT(statuses[1].message(), HasSubstr(one.message));
    EXPECT_EQ(statuses[0].code(), StatusCode::kGroup);
  }
}

}  // namespace
}  // namespace shoal::fabric

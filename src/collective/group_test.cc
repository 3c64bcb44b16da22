#include "collective/group.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "fabric/testing/thread_group.h"

namespace shoal::collective {
namespace {

using fabric::Fabric;
using fabric::test_deadline;
using fabric::ThreadGroup;
using fabric::ThreadGroupOptions;
using testing::HasSubstr;

// Groups are broken on purpose here. Also, the logger is made before there are threads: it lives in
// a library that the thread sanitizer does not see into.
class Quiet : public testing::Environment {
  void SetUp() override { spdlog::set_level(spdlog::level::off); }
};
const auto* const kQuiet = testing::AddGlobalTestEnvironment(new Quiet);

// Small slots, so that every boundary is near: 256 floats each, 3 of them.
constexpr fabric::SlotClass kSlots{.payload_bytes = 1024, .count = 3};
constexpr size_t kSlotFloats = 256;

struct World {
  std::string maker;
  int size;
  bool uses_mapped_memory = true;  // where the maker has it
};

std::string world_name(const testing::TestParamInfo<World>& info) {
  const std::string slots = info.param.uses_mapped_memory ? "" : "Slots";
  return info.param.maker + slots + std::to_string(info.param.size);
}

std::vector<World> all_worlds() {
  std::vector<World> worlds;
  for (const int size : {1, 2, 3, 4, 5, 6, 7, 8}) worlds.push_back({"sim", size});
  for (const int size : {1, 2, 3, 4, 5, 8}) worlds.push_back({"shm", size});
  for (const int size : {2, 3, 4}) worlds.push_back({"shm", size, false});
  for (const int size : {2, 3, 5}) worlds.push_back({"tcp", size});
  for (const int size : {2, 3}) worlds.push_back({"verbs", size});
  for (const int size : {2, 4}) worlds.push_back({"verbs_thunderbolt", size});
  return worlds;
}

class Collectives : public testing::TestWithParam<World> {
 protected:
  void SetUp() override {
    if (GetParam().maker == "verbs" && !fabric::has_rdma_device()) {
      GTEST_SKIP() << fabric::kNoRdmaDevice;
    }
  }
  static ThreadGroupOptions options(uint64_t seed = 1) {
    ThreadGroupOptions options;
    options.maker = GetParam().maker;
    options.size = GetParam().size;
    options.slots = kSlots;
    options.sim.seed = seed;
    options.sim.delay_min = std::chrono::microseconds(1);
    options.sim.delay_max = std::chrono::microseconds(700);
    return options;
  }
  static size_t ranks() { return static_cast<size_t>(GetParam().size); }
  static void run(const std::function<Status(Fabric&, Group&)>& body,
                  GroupOptions group_options = {}, uint64_t seed = 1) {
    ThreadGroup group(options(seed));
    group_options.uses_mapped_memory = GetParam().uses_mapped_memory;
    const auto statuses = group.run([&](Fabric& fabric) {
      Group collective(fabric, group_options);
      return body(fabric, collective);
    });
    for (const Status& status : statuses) EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
};

INSTANTIATE_TEST_SUITE_P(Worlds, Collectives, testing::ValuesIn(all_worlds()), world_name);

// Numbers whose sum depends on the order: magnitudes from 2^-20 to 2^20.
std::vector<float> numbers(size_t count, int rank) {
  std::vector<float> data(count);
  const auto bytes = fabric::test_bytes(count * 2, static_cast<uint64_t>(rank) + 77);
  for (size_t i = 0; i < count; ++i) {
    const int mantissa = static_cast<int>(bytes[2 * i]) - 128;
    const int exponent = static_cast<int>(bytes[2 * i + 1]) % 41 - 20;
    data[i] = std::ldexp(static_cast<float>(mantissa) + 0.37F, exponent);
  }
  return data;
}

std::vector<float> expected_sum(size_t count, size_t ranks) {
  std::vector<float> sum = numbers(count, 0);
  for (size_t rank = 1; rank < ranks; ++rank) {
    const auto addend = numbers(count, static_cast<int>(rank));
    for (size_t i = 0; i < count; ++i) sum[i] = sum[i] + addend[i];
  }
  return sum;
}

// Around the boundaries of slots, chunks, shards and the ranks.
std::vector<size_t> counts(size_t ranks) {
  std::vector<size_t> counts = {0, 1, 2, 15, 16, 17, 255, 256, 257, 511, 513, 767, 768, 769, 5000};
  for (const size_t near : {ranks, ranks * 16, ranks * kSlotFloats, 2 * ranks * kSlotFloats}) {
    counts.push_back(near - 1);
    counts.push_back(near);
    counts.push_back(near + 1);
  }
  return counts;
}

bool is_same_bits(std::span<const float> a, std::span<const float> b) {
  return std::ranges::equal(std::as_bytes(a), std::as_bytes(b));
}

TEST_P(Collectives, AllReduceGivesTheRankOrderedSumBitForBitAtEverySize) {
  for (const uint64_t seed : {1, 2}) {
    run(
        [&](Fabric& fabric, Group& group) -> Status {
          for (const size_t count : counts(ranks())) {
            std::vector<float> data = numbers(count, fabric.rank());
            RETURN_IF_ERROR(group.all_reduce(data, test_deadline(fabric)));
            EXPECT_TRUE(is_same_bits(data, expected_sum(count, ranks()))) << count;
          }
          return Status::ok();
        },
        {}, seed);
  }
}

TEST_P(Collectives, BothPathsOfAllReduceGiveTheSameBits) {
  // With no one-shot at all, even one element goes through reduce-scatter and all-gather.
  run(
      [&](Fabric& fabric, Group& group) -> Status {
        for (const size_t count : {1, 3, 16, 100, 256}) {
          std::vector<float> data = numbers(count, fabric.rank());
          RETURN_IF_ERROR(group.all_reduce(data, test_deadline(fabric)));
          EXPECT_TRUE(is_same_bits(data, expected_sum(count, ranks()))) << count;
        }
        return Status::ok();
      },
      {.sum = sum_in_rank_order,
       .one_shot_bytes_max = 0,
       .mapped_one_shot_bytes_max = 0,
       .crowded_one_shot_bytes_max = 0});
}

// Paths of mapped memory use its parts differently, and follow each other at any size.
TEST_P(Collectives, SmallAndLargeAllReducesFollowEachOther) {
  run([&](Fabric& fabric, Group& group) -> Status {
    uint64_t state = 99;
    for (int step = 0; step < 200; ++step) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      const size_t count = (state >> 40) % (step % 3 == 0 ? 20'000 : 300);
      std::vector<float> data = numbers(count, fabric.rank());
      RETURN_IF_ERROR(group.all_reduce(data, test_deadline(fabric)));
      EXPECT_TRUE(is_same_bits(data, expected_sum(count, ranks()))) << count;
    }
    return Status::ok();
  });
}

TEST_P(Collectives, AllGatherTakesUnevenAndEmptyParts) {
  run([&](Fabric& fabric, Group& group) -> Status {
    for (const size_t unit : {0, 1, 500, 1024, 3000}) {
      // Rank 0 has nothing, rank r has r units and a bit.
      std::vector<size_t> sizes(ranks());
      for (size_t r = 0; r < ranks(); ++r) sizes[r] = r * unit + (r == 0 ? 0 : r % 3);
      std::vector<std::byte> expected;
      for (size_t r = 0; r < ranks(); ++r) {
        const auto part = fabric::test_bytes(sizes[r], r + unit);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      std::vector<std::byte> all(expected.size());
      const auto own = static_cast<size_t>(fabric.rank());
      const size_t begin = std::accumulate(sizes.begin(), sizes.begin() + fabric.rank(), size_t{0});
      std::ranges::copy(fabric::test_bytes(sizes[own], own + unit),
                        all.begin() + static_cast<ptrdiff_t>(begin));
      RETURN_IF_ERROR(
          group.all_gather({.all = all, .bytes_by_rank = sizes}, test_deadline(fabric)));
      EXPECT_TRUE(all == expected);
    }
    return Status::ok();
  });
}

TEST_P(Collectives, BroadcastReachesEveryoneFromEveryRoot) {
  run([&](Fabric& fabric, Group& group) -> Status {
    for (int root = 0; root < group.size(); ++root) {
      for (const size_t bytes : {0, 1, 1023, 1024, 1025, 10'000}) {
        const auto expected = fabric::test_bytes(bytes, static_cast<uint64_t>(root) + bytes);
        std::vector<std::byte> data(bytes);
        if (fabric.rank() == root) data = expected;
        RETURN_IF_ERROR(group.broadcast(data, root, test_deadline(fabric)));
        EXPECT_TRUE(data == expected);
        std::vector<std::byte> message;
        if (fabric.rank() == root) message = expected;
        RETURN_IF_ERROR(group.broadcast_message(message, root, test_deadline(fabric)));
        EXPECT_TRUE(message == expected);
      }
    }
    return Status::ok();
  });
}

TEST_P(Collectives, GatherBringsUnevenPartsToTheRoot) {
  run([&](Fabric& fabric, Group& group) -> Status {
    for (int root = 0; root < group.size(); ++root) {
      std::vector<size_t> sizes(ranks());
      std::vector<std::byte> expected;
      for (size_t r = 0; r < ranks(); ++r) {
        sizes[r] = (r * 1500) % 4000;
        const auto part = fabric::test_bytes(sizes[r], r);
        expected.insert(expected.end(), part.begin(), part.end());
      }
      const auto own = static_cast<size_t>(fabric.rank());
      const auto mine = fabric::test_bytes(sizes[own], own);
      std::vector<std::byte> all(fabric.rank() == root ? expected.size() : 0);
      RETURN_IF_ERROR(
          group.gather({.mine = mine, .parts = {.all = all, .bytes_by_rank = sizes}, .root = root},
                       test_deadline(fabric)));
      if (fabric.rank() == root) EXPECT_TRUE(all == expected);
    }
    return Status::ok();
  });
}

TEST_P(Collectives, NobodyLeavesABarrierBeforeEveryoneHasEntered) {
  std::atomic<int> entered{0};
  run([&](Fabric& fabric, Group& group) -> Status {
    for (int round = 1; round <= 5; ++round) {
      entered.fetch_add(1);
      RETURN_IF_ERROR(group.barrier(test_deadline(fabric)));
      EXPECT_GE(entered.load(), round * group.size());
    }
    return Status::ok();
  });
}

TEST_P(Collectives, OperationsOfAllKindsFollowEachOtherInAnyMix) {
  run([&](Fabric& fabric, Group& group) -> Status {
    uint64_t state = 12345;
    for (int step = 0; step < 60; ++step) {
      state = state * 6364136223846793005U + 1442695040888963407U;
      const size_t count = (state >> 40) % 1500;
      const int root = static_cast<int>((state >> 20) % ranks());
      const Deadline deadline = test_deadline(fabric);
      std::vector<std::byte> bytes(count, static_cast<std::byte>(fabric.rank()));
      std::vector<float> data = numbers(count, fabric.rank());
      switch ((state >> 60) % 3) {
        case 0:
          RETURN_IF_ERROR(group.all_reduce(data, deadline));
          EXPECT_TRUE(is_same_bits(data, expected_sum(count, ranks())));
          break;
        case 1:
          RETURN_IF_ERROR(group.broadcast(bytes, root, deadline));
          EXPECT_TRUE(std::ranges::all_of(
              bytes, [&](std::byte byte) { return byte == static_cast<std::byte>(root); }));
          break;
        default:
          RETURN_IF_ERROR(group.barrier(deadline));
      }
    }
    EXPECT_EQ(group.counters().operations, 60);
    return Status::ok();
  });
}

TEST(Group, CountsOperationsBytesAndTime) {
  ThreadGroup threads({.maker = "shm", .size = 2, .slots = kSlots});
  const auto statuses = threads.run([](Fabric& fabric) -> Status {
    Group group(fabric);
    std::vector<float> data(100);
    RETURN_IF_ERROR(group.all_reduce(data, test_deadline(fabric)));
    RETURN_IF_ERROR(group.barrier(test_deadline(fabric)));
    EXPECT_EQ(group.counters().operations, 2);
    EXPECT_EQ(group.counters().bytes, 400);
    EXPECT_GT(group.counters().seconds, 0);
    group.reset_counters();
    EXPECT_EQ(group.counters().operations, 0);
    return Status::ok();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.is_ok()) << status.to_string();
}

TEST(Group, AMissingRankIsNamedWithTheOperationAndTheGroupStaysBroken) {
  for (const char* maker : {"shm", "tcp", "sim"}) {
    ThreadGroup threads({.maker = maker, .size = 3, .slots = kSlots});
    const auto statuses = threads.run([](Fabric& fabric) -> Status {
      Group group(fabric);
      // Rank 2 takes no part, but lives.
      if (fabric.rank() == 2) {
        const Deadline deadline = test_deadline(fabric);
        while (!fabric.health().failed()) fabric.endpoint(0).wait(deadline);
        return fabric.health().failure();
      }
      std::vector<float> data(10);
      const Status status =
          group.all_reduce(data, Deadline::after(fabric.clock(), std::chrono::milliseconds(100)));
      EXPECT_FALSE(group.barrier(test_deadline(fabric)).is_ok());
      return status;
    });
    // Both wait for rank 2; whoever is first tells the other.
    for (const size_t rank : {0, 1}) {
      EXPECT_EQ(statuses[rank].code(), StatusCode::kGroup);
      EXPECT_THAT(statuses[rank].message(), HasSubstr("all_reduce of 40 bytes: "));
      EXPECT_THAT(statuses[rank].message(), HasSubstr("rank 2 ("));
    }
    EXPECT_EQ(statuses[2].code(), StatusCode::kGroup);
  }
}

// Every operation has its deadline, says what was waited for and names who was missing.
TEST(Group, EveryOperationNamesAMissingRank) {
  using Operation = std::function<Status(Group&, const Deadline&)>;
  std::vector<std::byte> bytes(30);
  const std::vector<size_t> sizes = {10, 10, 10};
  const std::vector<std::pair<std::string, Operation>> operations = {
      {"all_gather",
       [&](Group& group, const Deadline& deadline) {
         return group.all_gather({bytes, sizes}, deadline);
       }},
      {"did not finish sending a message",  // a broadcast is one
       [&](Group& group, const Deadline& deadline) { return group.broadcast(bytes, 2, deadline); }},
      {"gather",
       [&](Group& group, const Deadline& deadline) {
         return group.gather({std::span(bytes).first(10), {bytes, sizes}, 0}, deadline);
       }},
      {"barrier", [](Group& group, const Deadline& deadline) { return group.barrier(deadline); }},
  };
  for (const auto& [words, operation] : operations) {
    for (const char* maker : {"shm", "tcp", "sim"}) {
      ThreadGroup threads({.maker = maker, .size = 3, .slots = kSlots});
      const auto statuses = threads.run([&operation](Fabric& fabric) -> Status {
        if (fabric.rank() != 0) {
          // Alive, and in no operation.
          const Deadline deadline = test_deadline(fabric);
          while (!fabric.health().failed()) fabric.endpoint(0).wait(deadline);
          return fabric.health().failure();
        }
        Group group(fabric);
        return operation(group, Deadline::after(fabric.clock(), std::chrono::milliseconds(100)));
      });
      for (const Status& status : statuses) {
        EXPECT_EQ(status.code(), StatusCode::kGroup) << words << " " << maker;
        EXPECT_THAT(status.message(), HasSubstr(words)) << maker;
        EXPECT_THAT(status.message(), HasSubstr("rank ")) << maker;
      }
    }
  }
}

// Everybody's result waits for rank 2; rank 0 must not blame rank 1, which only waits as it does.
TEST(Group, ASilentRankIsNamedByAllInALargeAllReduceTooAndByTheOperation) {
  ThreadGroup threads({.maker = "sim", .size = 3, .slots = kSlots});
  const auto statuses = threads.run([](Fabric& fabric) -> Status {
    Group group(fabric);
    if (fabric.rank() == 2) {
      const Deadline deadline = test_deadline(fabric);
      while (!fabric.health().failed()) fabric.endpoint(0).wait(deadline);
      EXPECT_EQ(fabric.health().culprit(), 2);
      return fabric.health().failure();
    }
    // Rank 0 gives up first, by itself.
    const auto patience = std::chrono::milliseconds(fabric.rank() == 0 ? 100 : 200);
    std::vector<float> data(20'000);
    const Status status = group.all_reduce(data, Deadline::after(fabric.clock(), patience));
    EXPECT_EQ(fabric.health().culprit(), 2);
    return status;
  });
  const std::string what = "did not finish all_reduce of 80000 bytes before the deadline";
  EXPECT_THAT(statuses[0].message(), HasSubstr("rank 2 (sim-2) over sim " + what +
                                               "; also waiting for rank 1 (sim-1) over sim"));
  for (const Status& status : statuses) EXPECT_THAT(status.message(), HasSubstr(what));
}

TEST(Group, RanksThatDisagreeAboutASizeGetAnErrorNotAWrongSum) {
  ThreadGroup threads({.maker = "shm", .size = 2, .slots = kSlots});
  const auto statuses = threads.run([](Fabric& fabric) -> Status {
    Group group(fabric);
    std::vector<float> data(fabric.rank() == 0 ? 10 : 20);
    return group.all_reduce(data, test_deadline(fabric));
  });
  // One of the two finds it first and tells the other, or both find it.
  EXPECT_FALSE(statuses[0].is_ok() && statuses[1].is_ok());
  for (const Status& status : statuses) {
    if (!status.is_ok()) EXPECT_THAT(status.message(), HasSubstr("were expected"));
  }
}

TEST(Group, RanksInDifferentOperationsGetAnErrorNotAWrongResult) {
  ThreadGroup threads({.maker = "shm", .size = 2, .slots = kSlots});
  const auto statuses = threads.run([](Fabric& fabric) -> Status {
    Group group(fabric);
    std::vector<float> data(10);
    if (fabric.rank() == 0) return group.all_reduce(data, test_deadline(fabric));
    return group.broadcast(std::as_writable_bytes(std::span(data)), 0, test_deadline(fabric));
  });
  EXPECT_THAT(statuses[1].message(), HasSubstr("is in another operation"));
  EXPECT_FALSE(statuses[0].is_ok());
}

TEST(Group, ALongBroadcastDeadlineWithoutMessageBreaksNothing) {
  ThreadGroup threads({.maker = "sim", .size = 2, .slots = kSlots});
  const auto statuses = threads.run([](Fabric& fabric) -> Status {
    Group group(fabric);
    const auto soon = [&] {
      return Deadline::after(fabric.clock(), std::chrono::milliseconds(10));
    };
    if (fabric.rank() == 0) {
      const Deadline later = Deadline::after(fabric.clock(), std::chrono::milliseconds(15));
      while (!later.expired()) fabric.endpoint(1).wait(later);
      std::vector<std::byte> message(5);
      return group.broadcast_message(message, 0, soon());
    }
    std::vector<std::byte> message;
    EXPECT_EQ(group.broadcast_message(message, 0, soon()).code(), StatusCode::kBusy);
    RETURN_IF_ERROR(group.broadcast_message(message, 0, soon()));
    EXPECT_EQ(message.size(), 5);
    return Status::ok();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.is_ok()) << status.to_string();
}

TEST(Sum, AddsInRankOrderWithAnyNumberOfPartsAndInPlace) {
  for (const size_t ranks : {1, 2, 3, 5, 8}) {
    for (const size_t count : {0, 1, 7, 16, 1023, 1024, 1025, 4099}) {
      std::vector<std::vector<float>> parts;
      std::vector<const float*> pointers;
      parts.reserve(ranks);
      pointers.reserve(ranks);
      for (size_t rank = 0; rank < ranks; ++rank) {
        parts.push_back(numbers(count, static_cast<int>(rank)));
      }
      for (const auto& part : parts) pointers.push_back(part.data());
      const std::vector<float> expected = expected_sum(count, ranks);
      std::vector<float> aside(count);
      sum_in_rank_order(aside, pointers);
      EXPECT_TRUE(is_same_bits(aside, expected));
      std::vector<float>& in_place = parts[ranks / 2];
      sum_in_rank_order(in_place, pointers);
      EXPECT_TRUE(is_same_bits(in_place, expected));
    }
  }
}

}  // namespace
}  // namespace shoal::collective

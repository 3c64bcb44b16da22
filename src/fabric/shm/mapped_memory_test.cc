// Memory that all ranks of a group map: steps, and peers that lag, leave, die or write rubbish.
#include "fabric/shm/mapped_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <functional>
#include <thread>

#include "fabric/shm/shm_group.h"
#include "fabric/testing/thread_group.h"

namespace shoal::fabric {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

constexpr uint64_t kEpoch = 99;
constexpr MappedLayout kLayout{.size = 2, .part_bytes = 256};
constexpr MappedStep kStep{.tag = 7, .bytes = 40};
constexpr size_t kPage = 4096;       // of a rank's controls
constexpr size_t kUnit = 64 * 1024;  // of what is mapped by itself

WaitPolicy patience(Nanoseconds time) {
  static const SpinPolicy spin{.pause_for = std::chrono::microseconds(5),
                               .yield_for = std::chrono::microseconds(5)};
  return {.spin = spin, .deadline = Deadline::after(time)};
}

// Rank 0's view, and the same memory as a wild rank 1 writes it, by the layout in docs/fabric.md.
class WildPeer {
 public:
  WildPeer() : health_(0, {"good", "wild"}), fd_(*MappedMemory::create(kLayout)) {
    memory_ = *MappedMemory::map(fd_.get(), kLayout, {.rank = 0, .epoch = kEpoch}, health_);
    base_ = static_cast<std::byte*>(mmap(nullptr, MappedMemory::size_bytes(kLayout),
                                         PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0));
  }
  ~WildPeer() { munmap(base_, MappedMemory::size_bytes(kLayout)); }
  WildPeer(const WildPeer&) = delete;
  WildPeer& operator=(const WildPeer&) = delete;

  struct Line {
    uint64_t number = 1;
    uint64_t epoch = kEpoch;
    uint64_t bytes = kStep.bytes;
    uint32_t tag = kStep.tag;
  };
  void publish(const Line& line, size_t in_line) {
    std::byte* at = base_ + kPage + 128 + 128 * in_line;
    std::memcpy(at + 8, &line.epoch, 8);
    std::memcpy(at + 16, &line.bytes, 8);
    std::memcpy(at + 24, &line.tag, 4);
    std::memcpy(at, &line.number, 8);
  }
  // Of rank 1.
  std::byte* part(uint64_t step) { return base_ + 2 * kUnit + step % 3 * 256; }
  // The first word of a bell.
  void set_sleeps(size_t rank) {
    const uint32_t one = 1;
    std::memcpy(base_ + rank * kPage, &one, 4);
  }

  MappedMemory& memory() { return *memory_; }
  GroupHealth& health() { return health_; }

 private:
  GroupHealth health_;
  UniqueFd fd_;
  std::unique_ptr<MappedMemory> memory_;
  std::byte* base_ = nullptr;
};

TEST(MappedMemory, AStepThatAllHavePublishedIsMetAndItsPartsAreRead) {
  WildPeer wild;
  for (uint64_t number = 1; number <= 7; ++number) {
    wild.part(number)[0] = static_cast<std::byte>(number);
    wild.memory().publish(kStep);
    EXPECT_FALSE(wild.memory().is_ahead(1));
    wild.publish({.number = number}, number % 2);
    ASSERT_TRUE(wild.memory().meet("a test", patience(seconds(10))).is_ok());
    EXPECT_EQ(wild.memory().part_of(1)[0], static_cast<std::byte>(number));
  }
  wild.publish({.number = 8}, 0);
  EXPECT_TRUE(wild.memory().is_ahead(1));
}

TEST(MappedMemory, EveryWrongFieldOfAStepBreaksTheGroup) {
  struct Case {
    WildPeer::Line line;
    const char* message;
  };
  const std::vector<Case> cases = {
      {{.number = 2}, "corrupted the number of its step"},
      {{.number = 3}, "corrupted the number of its step"},
      {{.number = UINT64_MAX}, "corrupted the number of its step"},
      {{.epoch = kEpoch - 1}, "another group epoch"},
      {{.bytes = 41}, "gave 41 bytes where 40 were expected"},
      {{.tag = 8}, "is in another operation (its tag is 8, ours is 7)"},
  };
  for (const Case& one : cases) {
    WildPeer wild;
    wild.publish(one.line, 1);
    wild.memory().publish(kStep);
    const Status status = wild.memory().meet("a test", patience(seconds(10)));
    EXPECT_EQ(status.code(), StatusCode::kGroup);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 (wild) over shm "));
    EXPECT_THAT(status.message(), HasSubstr(one.message));
    EXPECT_EQ(wild.health().culprit(), 1);
  }
}

TEST(MappedMemory, AStepThatGoesBackBreaksTheGroup) {
  WildPeer wild;
  for (uint64_t number = 1; number <= 3; ++number) {
    wild.memory().publish(kStep);
    wild.publish({.number = number}, number % 2);
    ASSERT_TRUE(wild.memory().meet("a test", patience(seconds(10))).is_ok());
  }
  wild.publish({.number = 1}, 0);
  wild.memory().publish(kStep);
  EXPECT_THAT(wild.memory().meet("a test", patience(seconds(10))).message(),
              HasSubstr("corrupted the number"));
}

TEST(MappedMemory, ARankThatDoesNotComeIsNamedWithTheOperationAtTheDeadline) {
  WildPeer wild;
  wild.memory().publish(kStep);
  const Status status = wild.memory().meet("a test", patience(milliseconds(20)));
  EXPECT_THAT(status.message(), HasSubstr("rank 1 (wild) over shm did not finish a test of 40 "
                                          "bytes before the deadline"));
}

TEST(MappedMemory, ALeavingPeersLastStepIsMetAndTheNextOneIsNot) {
  WildPeer wild;
  wild.publish({.number = 1}, 1);
  wild.health().mark_left(1);
  wild.memory().publish(kStep);
  ASSERT_TRUE(wild.memory().meet("a test", patience(seconds(10))).is_ok());
  wild.memory().publish(kStep);
  EXPECT_THAT(wild.memory().meet("a test", patience(seconds(10))).message(),
              HasSubstr("rank 1 (wild) has left the group"));
}

// Ends what a sleeper in meet() waits for, from another thread; how long it slept on.
Nanoseconds time_to_wake(WildPeer& wild, const std::function<void()>& event) {
  std::atomic<Nanoseconds::rep> at{0};
  std::thread other([&] {
    std::this_thread::sleep_for(milliseconds(30));
    at = SteadyClock::instance().now().count();
    event();
  });
  wild.memory().publish(kStep);
  (void)wild.memory().meet("a test", patience(seconds(30)));
  other.join();
  return SteadyClock::instance().now() - Nanoseconds(at);
}

// A sleep without a wake-up lasts half a second.
TEST(MappedMemory, AFailureAndALeavingWakeASleeper) {
  {
    WildPeer wild;
    const auto fail = [&] { wild.health().fail(1, "is gone"); };
    EXPECT_LT(time_to_wake(wild, fail), milliseconds(400));
    EXPECT_THAT(wild.health().failure().message(), HasSubstr("is gone"));
  }
  WildPeer wild;
  EXPECT_LT(time_to_wake(wild, [&] { wild.health().mark_left(1); }), milliseconds(400));
}

TEST(MappedMemory, WildBellsNeitherHangNorBreakAnything) {
  WildPeer wild;
  wild.set_sleeps(0);
  wild.set_sleeps(1);
  wild.publish({.number = 1}, 1);
  wild.memory().publish(kStep);
  EXPECT_TRUE(wild.memory().meet("a test", patience(seconds(10))).is_ok());
}

TEST(MappedMemory, MemoryOfAnotherSizeOrWithoutSealsIsRefused) {
  GroupHealth health(0, {"a", "b"});
  const MappedMemory::Identity self{.rank = 0, .epoch = kEpoch};
  const UniqueFd fd = *MappedMemory::create({.size = 2, .part_bytes = 64 * 1024});
  EXPECT_THAT(MappedMemory::map(fd.get(), kLayout, self, health).status().message(),
              HasSubstr("bytes where"));
  const UniqueFd bare(memfd_create("bare", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(bare.get(), static_cast<off_t>(MappedMemory::size_bytes(kLayout))), 0);
  EXPECT_THAT(MappedMemory::map(bare.get(), kLayout, self, health).status().message(),
              HasSubstr("not sealed"));
}

// The same memory through a descriptor that cannot be mapped for writing.
UniqueFd read_only(const UniqueFd& fd) {
  const std::string path = "/proc/self/fd/" + std::to_string(fd.get());
  return UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

TEST(MappedMemory, ARefusedMappingLeavesNothingBehindInTheGroupsHealth) {
  GroupHealth health(0, {"a", "b"});
  const UniqueFd fd = read_only(*MappedMemory::create(kLayout));
  ASSERT_TRUE(fd.is_valid());
  const auto memory = MappedMemory::map(fd.get(), kLayout, {.rank = 0, .epoch = kEpoch}, health);
  EXPECT_EQ(memory.status().code(), StatusCode::kNode);
  health.fail(1, "is gone");
}

// A message from every rank to every other.
Status greet_all(Fabric& fabric) {
  const std::vector<std::byte> hello(10);
  std::vector<std::byte> heard(10);
  for (int peer = 0; peer < fabric.size(); ++peer) {
    if (peer == fabric.rank()) continue;
    RETURN_IF_ERROR(send_message(fabric.endpoint(peer), hello, test_wait(fabric)));
    RETURN_IF_ERROR(receive_message_into(fabric.endpoint(peer), heard, test_wait(fabric)));
  }
  return Status::ok();
}

TEST(MappedMemory, WhenOneRankCannotMapItAllRanksDoWithoutAndTheGroupWorks) {
  constexpr int kSize = 3;
  const std::vector<std::string> names = {"a", "b", "c"};
  for (const bool has_descriptor : {true, false}) {
    auto ends = *make_shm_links(kSize, {.payload_bytes = 4096, .count = 4});
    ends[1].mapped = has_descriptor ? read_only(ends[1].mapped) : UniqueFd();
    std::vector<Status> statuses(kSize);
    std::vector<std::thread> threads;
    threads.reserve(kSize);
    for (int rank = 0; rank < kSize; ++rank) {
      threads.emplace_back([&, rank] {
        GroupSetup setup;
        setup.rank = rank;
        setup.size = kSize;
        setup.epoch = kEpoch;
        setup.fabric.slots = {.payload_bytes = 4096, .count = 4};
        auto& own = ends[static_cast<size_t>(rank)];
        auto fabric = connect_shm_group(setup, names, std::move(own), Deadline::after(seconds(30)));
        const auto use = [](Fabric& joined) {
          EXPECT_EQ(joined.mapped(), nullptr);
          return greet_all(joined);
        };
        statuses[static_cast<size_t>(rank)] = fabric.is_ok() ? use(**fabric) : fabric.status();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const Status& status : statuses) EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
}

TEST(MappedMemory, APeersRegionCannotBeWritten) {
  WildPeer wild;
  wild.publish({.number = 1}, 1);
  wild.memory().publish(kStep);
  ASSERT_TRUE(wild.memory().meet("a test", patience(seconds(10))).is_ok());
  // A system call reports what a store would end with.
  const std::span<const std::byte> foreign = wild.memory().part_of(1);
  const UniqueFd zero(open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(read(zero.get(), const_cast<std::byte*>(foreign.data()), 8), -1);
  EXPECT_EQ(errno, EFAULT);
  EXPECT_EQ(read(zero.get(), wild.memory().own_part().data(), 8), 8);
}

// Ranks of uneven pace over many steps: what one reads is what the other wrote for that step.
TEST(MappedMemory, NoPartIsOverwrittenWhileItIsRead) {
  for (const int size : {2, 3, 5}) {
    ThreadGroup group({.maker = "shm", .size = size});
    const auto statuses = group.run([](Fabric& fabric) -> Status {
      MappedMemory& memory = *fabric.mapped();
      const auto is_all = [](std::span<const std::byte> part, uint64_t value) {
        return std::ranges::all_of(
            part, [&](std::byte byte) { return byte == static_cast<std::byte>(value); });
      };
      for (uint64_t step = 1; step <= 300; ++step) {
        const auto own = static_cast<uint64_t>(fabric.rank());
        std::ranges::fill(memory.own_part(), static_cast<std::byte>(step * 7 + own));
        memory.publish({.tag = static_cast<uint32_t>(step), .bytes = step});
        RETURN_IF_ERROR(memory.meet("a test", test_wait(fabric)));
        if ((step + own) % 5 == 0) std::this_thread::yield();
        for (int peer = 0; peer < fabric.size(); ++peer) {
          if (peer == fabric.rank()) continue;
          EXPECT_TRUE(is_all(memory.part_of(peer), step * 7 + static_cast<uint64_t>(peer)));
        }
      }
      return Status::ok();
    });
    for (const Status& status : statuses) EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
}

// A rank that goes on in mapped memory without sending what it owes is found at once.
TEST(MappedMemory, WhoeverWaitsForASlotOfARankThatHasGoneOnGetsAnError) {
  ThreadGroup group({.maker = "shm", .size = 2});
  const auto statuses = group.run([](Fabric& fabric) -> Status {
    if (fabric.rank() == 0) {
      fabric.mapped()->publish(kStep);
      return fabric.mapped()->meet("a test", test_wait(fabric));
    }
    std::vector<std::byte> buffer(8);
    return receive_message_into(fabric.endpoint(0), buffer, test_wait(fabric));
  });
  EXPECT_THAT(statuses[1].message(), HasSubstr("is in another operation"));
  EXPECT_EQ(statuses[0].code(), StatusCode::kGroup);
}

}  // namespace
}  // namespace shoal::fabric

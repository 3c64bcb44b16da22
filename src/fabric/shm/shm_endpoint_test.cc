// A peer that writes rubbish into the shared memory of a link.
#include "fabric/shm/shm_endpoint.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "fabric/message.h"
#include "fabric/shm/shm_group.h"

namespace shoal::fabric {
namespace {

using testing::HasSubstr;

constexpr SlotClass kSlots{.payload_bytes = 128, .count = 4};
constexpr uint64_t kEpoch = 99;

// Rank 0's endpoint, and the same memory as a wild peer sees it.
struct WildPeer {
  WildPeer() : health(0, {"good", "wild"}) {
    const UniqueFd fd = *ShmSegment::create(kSlots);
    foreign = *ShmSegment::map(fd.get(), kSlots);
    endpoint = std::make_unique<ShmEndpoint>(EndpointInfo{.link = "shm",
                                                          .self_rank = 0,
                                                          .peer_rank = 1,
                                                          .peer_name = "wild",
                                                          .epoch = kEpoch,
                                                          .slots = kSlots},
                                             *ShmSegment::map(fd.get(), kSlots), health);
  }
  // A correct first slot from rank 1, but for what `spoil` does to it.
  void publish(const std::function<void(ShmSlotHeader&)>& spoil, uint64_t sequence = 1) {
    ShmSlotHeader& header = foreign->header(1, 0);
    header.magic = kSlotMagic;
    header.epoch = kEpoch;
    header.bytes = 5;
    header.message_left = 5;
    header.flags = kFlagFirst;
    spoil(header);
    header.sequence = sequence;
  }

  GroupHealth health;
  std::unique_ptr<ShmSegment> foreign;
  std::unique_ptr<ShmEndpoint> endpoint;
};

TEST(ShmEndpoint, ACorrectSlotIsReceived) {
  WildPeer wild;
  wild.publish([](ShmSlotHeader&) {});
  const auto slot = wild.endpoint->poll_receive();
  ASSERT_TRUE(slot.is_ok() && slot->has_value());
  EXPECT_EQ((*slot)->payload.size(), 5);
}

TEST(ShmEndpoint, EveryCorruptedFieldOfASlotBreaksTheGroup) {
  struct Case {
    std::function<void(ShmSlotHeader&)> spoil;
    const char* message;
  };
  const std::vector<Case> cases = {
      {[](ShmSlotHeader& header) { header.magic = 1; }, "wrong magic"},
      {[](ShmSlotHeader& header) { header.epoch = kEpoch - 1; }, "another group epoch"},
      {[](ShmSlotHeader& header) { header.bytes = 129; }, "the limit is 128"},
      {[](ShmSlotHeader& header) { header.bytes = UINT32_MAX; }, "the limit is 128"},
      {[](ShmSlotHeader& header) { header.message_left = 4; }, "longer than what its message"},
      {[](ShmSlotHeader& header) { header.flags = 8; }, "unknown flags"},
      {[](ShmSlotHeader& header) { header.flags = kFlagCredit; }, "unknown flags"},
  };
  for (const Case& one : cases) {
    WildPeer wild;
    wild.publish(one.spoil);
    EXPECT_THAT(wild.endpoint->poll_receive().status().message(), HasSubstr(one.message));
    EXPECT_EQ(wild.health.culprit(), 1);
    // And stays broken.
    EXPECT_FALSE(wild.endpoint->try_acquire_send().is_ok());
  }
}

TEST(ShmEndpoint, AWrongSequenceNumberBreaksTheGroup) {
  for (const uint64_t sequence : {uint64_t{2}, uint64_t{5}, UINT64_MAX}) {
    WildPeer wild;
    wild.publish([](ShmSlotHeader&) {}, sequence);
    EXPECT_THAT(wild.endpoint->poll_receive().status().message(), HasSubstr("where 1 was due"));
  }
}

TEST(ShmEndpoint, ACorruptedRingIndexBreaksTheGroup) {
  for (const uint64_t released : {uint64_t{5}, UINT64_MAX}) {
    WildPeer wild;
    for (uint32_t i = 0; i < kSlots.count; ++i) {
      const auto slot = wild.endpoint->try_acquire_send();
      ASSERT_TRUE(slot.is_ok() && slot->has_value());
      ASSERT_TRUE(wild.endpoint->post_send(**slot, {}).is_ok());
    }
    EXPECT_FALSE(wild.endpoint->try_acquire_send()->has_value());
    wild.foreign->controls().released[0].released = released;
    EXPECT_THAT(wild.endpoint->try_acquire_send().status().message(),
                HasSubstr("corrupted its count"));
  }
}

TEST(ShmEndpoint, AWildBellNeitherHangsNorBreaksAWait) {
  WildPeer wild;
  wild.foreign->controls().bells[0].wants = UINT32_MAX;
  wild.foreign->controls().bells[0].word = 12345;
  const Nanoseconds begin = SteadyClock::instance().now();
  wild.endpoint->wait(Deadline::after(std::chrono::milliseconds(20)));
  EXPECT_LT(SteadyClock::instance().now() - begin, std::chrono::seconds(2));
}

TEST(ShmEndpoint, AFailureWakesASleeper) {
  WildPeer wild;
  std::thread breaker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    wild.health.fail(1, "is gone");
  });
  const Nanoseconds begin = SteadyClock::instance().now();
  wild.endpoint->wait(Deadline::after(std::chrono::seconds(30)));
  breaker.join();
  EXPECT_LT(SteadyClock::instance().now() - begin, std::chrono::milliseconds(400));
}

TEST(ShmSegment, MemoryOfAnotherSizeOrWithoutSealsIsRefused) {
  const UniqueFd fd = *ShmSegment::create(kSlots);
  EXPECT_THAT(ShmSegment::map(fd.get(), {.payload_bytes = 256, .count = 4}).status().message(),
              HasSubstr("bytes where"));
  const UniqueFd bare(memfd_create("bare", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(bare.get(), static_cast<off_t>(ShmSegment::size_bytes(kSlots))), 0);
  EXPECT_THAT(ShmSegment::map(bare.get(), kSlots).status().message(), HasSubstr("not sealed"));
  EXPECT_FALSE(ShmSegment::map(STDIN_FILENO, kSlots).is_ok());
}

TEST(ShmLinks, AGroupThatNeedsMoreDescriptorsThanTheSoftLimitRaisesIt) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit small = before;
  small.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  {
    const auto links = make_shm_links(12, {.payload_bytes = 64, .count = 2});
    EXPECT_TRUE(links.is_ok()) << links.status().message();
  }
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

}  // namespace
}  // namespace shoal::fabric

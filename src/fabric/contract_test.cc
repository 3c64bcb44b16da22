// The contract of an Endpoint, on every maker, between threads. A peer that is killed or stopped
// needs a process: local_launch_test.cc has those on every kind of link. Rubbish from a peer
// differs by what carries it: each maker's own test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <latch>
#include <thread>

#include "fabric/message.h"
#include "fabric/testing/thread_group.h"
#include "fabric/ucx/ucx_table.h"

namespace shoal::fabric {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

class EndpointContract : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (GetParam() == "tcp6" && !listen_tcp(HostPort{.host = "::1", .port = 0}).is_ok()) {
      GTEST_SKIP() << "this machine has no IPv6";
    }
    if (GetParam() == "verbs" && !has_rdma_device()) GTEST_SKIP() << kNoRdmaDevice;
    if (const auto ucx = load_ucx(); GetParam().starts_with("ucx") && !ucx.is_ok()) {
      GTEST_SKIP() << ucx.status().message();
    }
  }
  ThreadGroupOptions options(int size = 2) const {
    ThreadGroupOptions options;
    options.maker = GetParam();
    options.size = size;
    options.sim.delay_min = std::chrono::microseconds(1);
    options.sim.delay_max = std::chrono::microseconds(50);
    return options;
  }
  static void expect_all_ok(const std::vector<Status>& statuses) {
    for (const Status& status : statuses) EXPECT_TRUE(status.is_ok()) << status.to_string();
  }
};

INSTANTIATE_TEST_SUITE_P(Makers, EndpointContract,
                         testing::Values("shm", "tcp", "tcp6", "sim", "verbs", "verbs_rc",
                                         "verbs_uc", "verbs_thunderbolt", "ucx", "ucx_tcp"),
                         [](const auto& info) { return info.param; });

Status expect_message(Fabric& fabric, int peer, const std::vector<std::byte>& expected) {
  ASSIGN_OR_RETURN(const auto bytes,
                   receive_message(fabric.endpoint(peer), 1 << 27, test_wait(fabric)));
  if (bytes != expected) return Status::request("other bytes than were sent");
  return Status::ok();
}

TEST_P(EndpointContract, MessagesOfManySizesArriveWholeAndInOrder) {
  // Around every boundary of a slot of 4096 bytes and of four slots.
  const std::vector<size_t> sizes = {0,    1,    63,   64,    4095,  4096,  4097,   0,
                                     8191, 8192, 8193, 16383, 16384, 16385, 100'000};
  ThreadGroup group(options());
  expect_all_ok(group.run([&](Fabric& fabric) -> Status {
    for (size_t i = 0; i < sizes.size(); ++i) {
      const auto bytes = test_bytes(sizes[i], i);
      if (fabric.rank() == 0) {
        RETURN_IF_ERROR(send_message(fabric.endpoint(1), bytes, test_wait(fabric)));
      } else {
        RETURN_IF_ERROR(expect_message(fabric, 0, bytes));
      }
    }
    return Status::ok();
  }));
}

TEST_P(EndpointContract, AMessageOf64MiBArrives) {
  ThreadGroupOptions wide = options();
  wide.slots = {.payload_bytes = 64 * 1024, .count = 8};
  const auto bytes = test_bytes(size_t{64} << 20, 3);
  ThreadGroup group(wide);
  expect_all_ok(group.run([&](Fabric& fabric) -> Status {
    if (fabric.rank() == 0) return expect_message(fabric, 1, bytes);
    return send_message(fabric.endpoint(0), bytes, test_wait(fabric));
  }));
}

TEST_P(EndpointContract, ASenderRunsOutOfCreditsAndGoesOnWhenSlotsAreReleased) {
  ThreadGroup group(options());
  std::latch is_full(1);
  expect_all_ok(group.run([&](Fabric& fabric) -> Status {
    Endpoint& peer = fabric.endpoint(1 - fabric.rank());
    if (fabric.rank() == 1) {
      is_full.wait();
      for (uint32_t i = 0; i < 10; ++i) {
        RETURN_IF_ERROR(expect_message(fabric, 0, test_bytes(64, i)));
      }
      return Status::ok();
    }
    uint32_t sent = 0;
    while (true) {
      ASSIGN_OR_RETURN(const auto slot, peer.try_acquire_send());
      if (!slot.has_value()) break;
      std::ranges::copy(test_bytes(64, sent), slot->payload.begin());
      RETURN_IF_ERROR(peer.post_send(*slot, {.bytes = 64, .is_first = true, .message_left = 64}));
      ++sent;
    }
    EXPECT_EQ(sent, peer.info().slots.count);
    is_full.count_down();
    for (; sent < 10; ++sent) {
      RETURN_IF_ERROR(send_message(peer, test_bytes(64, sent), test_wait(fabric)));
    }
    return Status::ok();
  }));
}

TEST_P(EndpointContract, AllSlotsMayBeHeldAndAreReleasedInOrder) {
  ThreadGroup group(options());
  expect_all_ok(group.run([&](Fabric& fabric) -> Status {
    Endpoint& peer = fabric.endpoint(1 - fabric.rank());
    const uint32_t count = peer.info().slots.count;
    if (fabric.rank() == 0) {
      for (uint32_t i = 0; i < 2 * count; ++i) {
        RETURN_IF_ERROR(send_message(peer, test_bytes(4096, i), test_wait(fabric)));
      }
      return Status::ok();
    }
    std::vector<ReceivedSlot> held;
    const Deadline deadline = test_deadline(fabric);
    while (held.size() < count) {
      ASSIGN_OR_RETURN(const auto slot, peer.poll_receive());
      if (slot.has_value()) held.push_back(*slot);
      if (!slot.has_value()) peer.wait(deadline);
    }
    ASSIGN_OR_RETURN(const auto none, peer.poll_receive());
    EXPECT_FALSE(none.has_value());
    for (uint32_t i = 0; i < count; ++i) {
      EXPECT_TRUE(std::ranges::equal(held[i].payload, test_bytes(4096, i)));
      RETURN_IF_ERROR(peer.release_receive(held[i]));
    }
    for (uint32_t i = count; i < 2 * count; ++i) {
      RETURN_IF_ERROR(expect_message(fabric, 0, test_bytes(4096, i)));
    }
    return Status::ok();
  }));
}

TEST_P(EndpointContract, BothDirectionsAtOnceNeitherBlockNorMix) {
  ThreadGroup group(options());
  expect_all_ok(group.run([&](Fabric& fabric) -> Status {
    const auto mine = test_bytes(1'000'000, static_cast<uint64_t>(fabric.rank()));
    const auto expected = test_bytes(1'000'000, static_cast<uint64_t>(1 - fabric.rank()));
    std::vector<std::byte> received(expected.size());
    const Transfer transfer{.endpoint = &fabric.endpoint(1 - fabric.rank()),
                            .send = std::span<const std::byte>(mine),
                            .receive = std::span<std::byte>(received)};
    RETURN_IF_ERROR(exchange({&transfer, 1}, "a test", test_wait(fabric)));
    EXPECT_TRUE(received == expected);
    return Status::ok();
  }));
}

TEST_P(EndpointContract, BytesSentInPlaceMayChangeOncePollSendsSaysTrue) {
  ThreadGroupOptions narrow = options();
  // RDMA copies what is shorter than 16 KiB; TCP's socket buffers are shorter than this.
  const uint32_t size = GetParam().starts_with("verbs") ? 32 * 1024 : 4096;
  narrow.slots.payload_bytes = size;
  narrow.tuning = {.send_buffer_bytes = 4096, .receive_buffer_bytes = 4096};
  ThreadGroup group(narrow);
  constexpr uint32_t kRounds = 50;
  expect_all_ok(group.run([&](Fabric& fabric) -> Status {
    Endpoint& peer = fabric.endpoint(1 - fabric.rank());
    const Deadline deadline = test_deadline(fabric);
    if (fabric.rank() == 1) {
      for (uint32_t i = 0; i < kRounds; ++i) {
        RETURN_IF_ERROR(expect_message(fabric, 0, test_bytes(size, i)));
      }
      return Status::ok();
    }
    std::vector<std::byte> bytes(size);
    const RegisteredMemory registered(fabric, bytes);
    const SlotNote note{.bytes = size, .is_first = true, .message_left = size};
    for (uint32_t i = 0; i < kRounds; ++i) {
      std::ranges::copy(test_bytes(size, i), bytes.begin());
      bool is_posted = false;
      bool is_taken = false;
      while (!is_taken) {
        if (!is_posted) {
          ASSIGN_OR_RETURN(is_posted, peer.try_send(bytes, note));
        }
        if (is_posted) {
          ASSIGN_OR_RETURN(is_taken, peer.poll_sends());
        }
        if (!is_taken) peer.wait(deadline);
      }
      std::ranges::fill(bytes, std::byte{0xee});
    }
    return Status::ok();
  }));
}

// C78: rings and full meshes with messages far beyond every buffer.
// Whole slots of it go in place, and what is left of it does not.
TEST_P(EndpointContract, RegisteredMessagesOfAnyLengthArriveAndAreGivenBack) {
  ThreadGroupOptions wide = options();
  wide.slots = {.payload_bytes = 32 * 1024, .count = 4};
  ThreadGroup group(wide);
  expect_all_ok(group.run([&](Fabric& fabric) -> Status {
    std::vector<std::byte> bytes(300 * 1024);
    const RegisteredMemory registered(fabric, bytes);
    for (const size_t size : {65636U, 81920U, 32768U, 32769U, 300U * 1024U}) {
      if (fabric.rank() == 1) {
        RETURN_IF_ERROR(expect_message(fabric, 0, test_bytes(size, size)));
        continue;
      }
      std::ranges::copy(test_bytes(size, size), bytes.begin());
      RETURN_IF_ERROR(
          send_message(fabric.endpoint(1), std::span(bytes).first(size), test_wait(fabric)));
      std::ranges::fill(bytes, std::byte{0xee});
    }
    return Status::ok();
  }));
}

TEST_P(EndpointContract, RingsOfManyRanksDoNotDeadlockOnLargeMessages) {
  for (int size = 2; size <= 8; ++size) {
    ThreadGroupOptions ring = options(size);
    ring.slots = {.payload_bytes = 1024, .count = 2};
    ring.tuning = {.send_buffer_bytes = 4096, .receive_buffer_bytes = 4096};
    ThreadGroup group(ring);
    expect_all_ok(group.run([&](Fabric& fabric) -> Status {
      const int next = (fabric.rank() + 1) % size;
      const int before = (fabric.rank() + size - 1) % size;
      for (const size_t bytes : {size_t{1}, size_t{64}, size_t{4096}, size_t{150'000}}) {
        const auto mine = test_bytes(bytes, static_cast<uint64_t>(fabric.rank()));
        std::vector<std::byte> received(bytes);
        std::vector<Transfer> transfers(2);
        transfers[0] = {&fabric.endpoint(next), std::span<const std::byte>(mine), {}};
        transfers[1] = {&fabric.endpoint(before), {}, std::span<std::byte>(received)};
        // With two ranks next and before are one endpoint.
        if (next == before) {
          transfers[0].receive = received;
          transfers.pop_back();
        }
        RETURN_IF_ERROR(exchange(transfers, "a ring", test_wait(fabric)));
        EXPECT_TRUE(received == test_bytes(bytes, static_cast<uint64_t>(before)));
      }
      return Status::ok();
    }));
  }
}

TEST_P(EndpointContract, WhatAPeerSentBeforeItLeftIsDeliveredAndThenItsLeavingIsReported) {
  ThreadGroup group(options());
  const auto statuses = group.run([&](Fabric& fabric) -> Status {
    if (fabric.rank() == 0) {
      return send_message(fabric.endpoint(1), test_bytes(16 * 1024, 5), test_wait(fabric));
    }
    RETURN_IF_ERROR(expect_message(fabric, 0, test_bytes(16 * 1024, 5)));
    return expect_message(fabric, 0, {});
  });
  EXPECT_TRUE(statuses[0].is_ok()) << statuses[0].to_string();
  EXPECT_EQ(statuses[1].code(), StatusCode::kGroup);
  EXPECT_THAT(statuses[1].message(), HasSubstr("rank 0"));
  EXPECT_THAT(statuses[1].message(), HasSubstr("has left the group"));
}

TEST_P(EndpointContract, ADeadlineWithoutAnyByteBreaksNothing) {
  ThreadGroup group(options());
  std::latch is_over(1);
  expect_all_ok(group.run([&](Fabric& fabric) -> Status {
    if (fabric.rank() == 0) {
      const WaitPolicy brief{.spin = fabric.spin(),
                             .deadline = Deadline::after(fabric.clock(), milliseconds(30))};
      const auto message = receive_message(fabric.endpoint(1), 100, brief);
      EXPECT_EQ(message.status().code(), StatusCode::kBusy) << message.status().to_string();
      EXPECT_FALSE(fabric.health().failed());
      is_over.count_down();
      return expect_message(fabric, 1, test_bytes(10, 1));
    }
    // Virtual time needs this rank to sleep; real time does not mind.
    while (!is_over.try_wait()) {
      fabric.endpoint(0).wait(Deadline::after(fabric.clock(), milliseconds(5)));
    }
    return send_message(fabric.endpoint(0), test_bytes(10, 1), test_wait(fabric));
  }));
}

TEST_P(EndpointContract, AStalledExchangeIsAnErrorThatNamesThePeer) {
  ThreadGroup group(options(3));
  std::latch is_sent(1);
  const auto statuses = group.run([&](Fabric& fabric) -> Status {
    if (fabric.rank() == 0) {
      is_sent.wait();
      std::vector<std::byte> a(10);
      std::vector<std::byte> b(10);
      const std::vector<Transfer> transfers = {{&fabric.endpoint(1), {}, std::span(a)},
                                               {&fabric.endpoint(2), {}, std::span(b)}};
      return exchange(
          transfers, "step 7",
          {.spin = fabric.spin(), .deadline = Deadline::after(fabric.clock(), milliseconds(300))});
    }
    if (fabric.rank() == 1) {
      RETURN_IF_ERROR(send_message(fabric.endpoint(0), test_bytes(10, 1), test_wait(fabric)));
      is_sent.count_down();
    }
    // Ends when rank 0 tells of the failure.
    std::vector<std::byte> nothing(1);
    return receive_message_into(fabric.endpoint(0), nothing, test_wait(fabric));
  });
  EXPECT_EQ(statuses[0].code(), StatusCode::kGroup);
  EXPECT_THAT(statuses[0].message(), HasSubstr("rank 2"));
  EXPECT_THAT(statuses[0].message(), HasSubstr("did not finish step 7 before the deadline"));
  // The culprit is the same for all.
  EXPECT_THAT(statuses[1].message(), HasSubstr("rank 2"));
  EXPECT_THAT(statuses[2].message(), HasSubstr("this node was given up by rank"));
}

TEST_P(EndpointContract, AMessageOfAnotherSizeThanExpectedIsRefused) {
  ThreadGroup group(options());
  const auto statuses = group.run([&](Fabric& fabric) -> Status {
    if (fabric.rank() == 0) {
      RETURN_IF_ERROR(send_message(fabric.endpoint(1), test_bytes(100, 1), test_wait(fabric)));
      return expect_message(fabric, 1, {});
    }
    std::vector<std::byte> buffer(200);
    return receive_message_into(fabric.endpoint(0), buffer, test_wait(fabric));
  });
  EXPECT_THAT(statuses[1].message(), HasSubstr("rank 0"));
  EXPECT_THAT(statuses[1].message(),
              HasSubstr("sent a message of 100 bytes where 200 were expected"));
  EXPECT_THAT(statuses[0].message(), HasSubstr("given up"));
}

}  // namespace
}  // namespace shoal::fabric

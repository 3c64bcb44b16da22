// A peer that sends rubbish over a stream.
#include "fabric/tcp/tcp_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>

#include "fabric/link/stream.h"
#include "fabric/message.h"

namespace shoal::fabric {
namespace {

using testing::HasSubstr;

constexpr SlotClass kSlots{.payload_bytes = 128, .count = 4};
constexpr uint64_t kEpoch = 99;

// Rank 0's endpoint, and the other end of its socket.
struct WildPeer {
  WildPeer() : health(0, {"good", "wild"}) {
    SocketPair pair = *make_socket_pair();
    endpoint = *TcpEndpoint::create({.link = "tcp",
                                     .self_rank = 0,
                                     .peer_rank = 1,
                                     .peer_name = "wild",
                                     .epoch = kEpoch,
                                     .slots = kSlots},
                                    std::move(pair.first), health);
    socket = std::move(pair.second);
  }
  static SlotHeader header(uint64_t sequence) {
    SlotHeader header;
    header.epoch = kEpoch;
    header.sequence = sequence;
    header.flags = kFlagFirst;
    return header;
  }
  void send_header(const SlotHeader& header) {
    std::array<std::byte, kSlotHeaderBytes> bytes;
    encode_slot_header(header, bytes);
    send_bytes(bytes);
  }
  void send_bytes(std::span<const std::byte> bytes) {
    ASSERT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  GroupHealth health;
  std::unique_ptr<TcpEndpoint> endpoint;
  UniqueFd socket;
};

TEST(TcpEndpoint, EveryCorruptedFieldBreaksTheGroup) {
  struct Case {
    void (*spoil)(SlotHeader&);
    const char* message;
  };
  for (const Case& one : {
           Case{[](SlotHeader& header) { header.magic = 0; }, "wrong magic"},
           Case{[](SlotHeader& header) { header.epoch = 1; }, "another group epoch"},
           Case{[](SlotHeader& header) { header.sequence = 2; }, "where 1 was due"},
           Case{[](SlotHeader& header) { header.bytes = 1U << 31; }, "the limit is 128"},
           Case{[](SlotHeader& header) { header.flags = 64; }, "unknown flags"},
           Case{[](SlotHeader& header) { header.released = 1; }, "impossible count of released"},
           Case{[](SlotHeader& header) { header.bytes = 8; }, "longer than what its message"},
       }) {
    WildPeer wild;
    SlotHeader header = WildPeer::header(1);
    one.spoil(header);
    wild.send_header(header);
    EXPECT_THAT(wild.endpoint->poll_receive().status().message(), HasSubstr(one.message));
    EXPECT_EQ(wild.health.culprit(), 1);
  }
}

TEST(TcpEndpoint, MoreSlotsThanCreditsBreakTheGroup) {
  WildPeer wild;
  for (uint64_t sequence = 1; sequence <= kSlots.count + 1; ++sequence) {
    wild.send_header(WildPeer::header(sequence));
  }
  EXPECT_THAT(wild.endpoint->poll_receive().status().message(), HasSubstr("without a credit"));
}

// C17 g: a frame cut short. The monitor has the last word, so the endpoint only reports a
// suspicion.
TEST(TcpEndpoint, AStreamThatEndsInTheMiddleOfASlotIsSuspected) {
  WildPeer wild;
  SlotHeader header = WildPeer::header(1);
  header.bytes = 100;
  header.message_left = 100;
  wild.send_header(header);
  wild.socket.reset();
  // The first call takes the bytes, the second meets the end.
  for (int call = 0; call < 2; ++call) {
    const auto slot = wild.endpoint->poll_receive();
    ASSERT_TRUE(slot.is_ok());
    EXPECT_FALSE(slot->has_value());
  }
  ASSERT_EQ(wild.health.suspicions().size(), 1);
  EXPECT_EQ(wild.health.suspicions()[0].rank, 1);
  EXPECT_THAT(wild.health.suspicions()[0].reason, HasSubstr("in the middle of a slot"));
}

TEST(TcpEndpoint, SlotsArriveWhateverTheStreamIsCutInto) {
  for (size_t piece = 1; piece < 200; piece += 13) {
    WildPeer wild;
    std::vector<std::byte> stream;
    for (uint64_t sequence = 1; sequence <= 4; ++sequence) {
      SlotHeader header = WildPeer::header(sequence);
      header.bytes = static_cast<uint32_t>(sequence * 32);
      header.message_left = header.bytes;
      std::array<std::byte, kSlotHeaderBytes> bytes;
      encode_slot_header(header, bytes);
      stream.insert(stream.end(), bytes.begin(), bytes.end());
      stream.insert(stream.end(), header.bytes, static_cast<std::byte>(sequence));
    }
    std::vector<ReceivedSlot> slots;
    for (size_t at = 0; at < stream.size(); at += piece) {
      wild.send_bytes(std::span(stream).subspan(at, std::min(piece, stream.size() - at)));
      const auto slot = wild.endpoint->poll_receive();
      ASSERT_TRUE(slot.is_ok()) << slot.status().message();
      if (slot->has_value()) slots.push_back(**slot);
    }
    while (slots.size() < 4) {
      const auto slot = wild.endpoint->poll_receive();
      ASSERT_TRUE(slot.is_ok() && slot->has_value());
      slots.push_back(**slot);
    }
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(slots[i].payload.size(), (i + 1) * 32);
      for (const std::byte byte : slots[i].payload) {
        ASSERT_EQ(byte, static_cast<std::byte>(i + 1));
      }
    }
  }
}

}  // namespace
}  // namespace shoal::fabric

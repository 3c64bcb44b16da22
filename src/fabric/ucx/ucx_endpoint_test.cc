// What a peer can do wrong over UCX and while the link comes up. contract_test.cc has the
// endpoint's contract, local_launch_test.cc peers that are killed and stopped.
#include "fabric/ucx/ucx_endpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <thread>

#include "fabric/link/stream.h"
#include "fabric/testing/thread_group.h"
#include "fabric/ucx/ucx_connect.h"

namespace shoal::fabric {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr SlotClass kSlots{.payload_bytes = 128, .count = 4};
constexpr uint64_t kEpoch = 99;

TEST(UcxTable, WithoutTheLibraryOrWithAnotherOneTheErrorSaysWhatToInstall) {
  const auto missing = load_ucx_from("libucp.so.of-nowhere");
  EXPECT_EQ(missing.status().code(), StatusCode::kNode);
  EXPECT_THAT(missing.status().message(), HasSubstr("libucp.so.of-nowhere"));
  EXPECT_THAT(missing.status().message(), HasSubstr("install UCX 1.13 or newer (libucx0)"));
  const auto other = load_ucx_from("libm.so.6");
  EXPECT_THAT(other.status().message(), HasSubstr("libm.so.6 has no ucp_config_read"));
}

TEST(UcxTransports, AreReadFromWhatUcxPrints) {
  EXPECT_THAT(
      ucx_transports_in(
          "#\n# UCP endpoint \n#\n#               peer: node\n"
          "#                 lane[0]:  2:sysv/memory.0 md[2]   -> md[2]/sysv/sysdev[255] am\n"
          "#                 lane[1]: 10:tcp/eth0.0 md[0]      -> md[0]/tcp/sysdev[255]\n"
          "#                 lane[2]: of a kind unknown\n#\n"),
      ElementsAre("sysv/memory", "tcp/eth0"));
  EXPECT_THAT(ucx_transports_in(""), IsEmpty());
  EXPECT_THAT(ucx_transports_in("lane["), IsEmpty());
}

UcxOffer an_offer() {
  UcxOffer offer;
  offer.machine = "0123-4567";
  offer.address.assign(100, std::byte{7});
  return offer;
}

TEST(UcxOffer, IsReadBack) {
  const auto read = decode_ucx_offer(encode_ucx_offer(an_offer()));
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_EQ(read->version, UCP_API_VERSION);
  EXPECT_EQ(read->machine, "0123-4567");
  EXPECT_EQ(read->address, an_offer().address);
  UcxOffer refusal;
  refusal.reason = std::string("no\tdevice") + std::string(1000, 'x');
  const auto refused = decode_ucx_offer(encode_ucx_offer(refusal));
  ASSERT_TRUE(refused.is_ok()) << refused.status().message();
  EXPECT_EQ(refused->reason.size(), UcxOffer::kReasonBytesMax);
  EXPECT_THAT(refused->reason, testing::StartsWith("no?device"));
}

// At 0 magic, 8 kind, 12 bytes of the body.
TEST(UcxOffer, CutOrOfAnImpossibleKindOrLengthIsTheGroupsFailure) {
  const std::vector<std::byte> good = encode_ucx_offer(an_offer());
  for (size_t cut = 0; cut < good.size(); ++cut) {
    EXPECT_EQ(decode_ucx_offer(std::span(good).first(cut)).status().code(), StatusCode::kGroup);
  }
  const auto header_with = [&](size_t at, uint8_t value, uint8_t next) {
    std::array<std::byte, UcxOffer::kHeaderBytes> header{};
    std::copy_n(good.begin(), header.size(), header.begin());
    header[at] = std::byte{value};
    header[at + 1] = std::byte{next};
    return ucx_offer_body_bytes(header).status().code();
  };
  EXPECT_EQ(header_with(0, 1, 1), StatusCode::kGroup);
  EXPECT_EQ(header_with(8, 2, 0), StatusCode::kGroup);
  EXPECT_EQ(header_with(8, 1, 0), StatusCode::kOk);
  EXPECT_EQ(header_with(12, 40, 0), StatusCode::kGroup);  // no address
  EXPECT_EQ(header_with(13, 0, 1), StatusCode::kGroup);   // 64 KiB and more
  EXPECT_EQ(header_with(12, 41, 0), StatusCode::kOk);
}

// With UCX of this machine.
class UcxEndpointTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto ucx = load_ucx();
    if (!ucx.is_ok()) GTEST_SKIP() << ucx.status().message();
    context = *UcxContext::open({.table = *ucx});
  }
  static EndpointInfo info() {
    return {.link = "ucx",
            .self_rank = 0,
            .peer_rank = 1,
            .peer_name = "wild",
            .epoch = kEpoch,
            .slots = kSlots};
  }
  // Rank 0's side of the way up, while `peer` acts at the other end of its socket.
  Result<std::unique_ptr<UcxEndpoint>> connect_to(const std::function<void(int)>& peer) {
    SocketPair sockets = *make_socket_pair();
    std::thread thread([&] {
      peer(sockets.second.get());
      sockets.second.reset();
    });
    auto endpoint =
        connect_ucx(*context, sockets.first.get(), info(), health, Deadline::after(seconds(2)));
    thread.join();
    return endpoint;
  }
  void expect_no_link(const std::function<void(int)>& peer, const char* message) {
    const auto endpoint = connect_to(peer);
    ASSERT_FALSE(endpoint.is_ok());
    EXPECT_THAT(endpoint.status().message(), HasSubstr("rank 1 (wild) over ucx"));
    EXPECT_THAT(endpoint.status().message(), HasSubstr(message));
  }

  std::unique_ptr<UcxContext> context;
  GroupHealth health{0, {"good", "wild"}};
};

TEST_F(UcxEndpointTest, APeerThatCannotOrDoesNotAnswerIsNamedWithTheReason) {
  const auto say = [](const UcxOffer& offer) {
    return [offer](int socket) {
      (void)write_all(socket, encode_ucx_offer(offer), Deadline::after(seconds(1)));
      std::array<std::byte, UcxOffer::kHeaderBytes> answer;
      (void)read_all(socket, answer, Deadline::after(seconds(1)));
    };
  };
  UcxOffer refusal;
  refusal.reason = "no device";
  expect_no_link(say(refusal), "cannot use UCX: no device");
  UcxOffer old = an_offer();
  old.version = UCP_VERSION(1, 3);
  expect_no_link(say(old), "has UCX 1.3, this node has 1.");
  expect_no_link([](int /*socket*/) {}, "closed");
  expect_no_link(
      [](int socket) {
        const std::array<std::byte, 64> rubbish{};
        (void)write_all(socket, rubbish, Deadline::after(seconds(1)));
      },
      "rubbish for the address");
  const Nanoseconds begin = SteadyClock::instance().now();
  expect_no_link([](int /*socket*/) { std::this_thread::sleep_for(milliseconds(2500)); },
                 "timed out");
  EXPECT_LT(SteadyClock::instance().now() - begin, seconds(4));
}

ucs_status_t drop(void* /*self*/, const void* /*header*/, size_t /*header_bytes*/, void* /*data*/,
                  size_t /*bytes*/, const ucp_am_recv_param_t* /*param*/) {
  return UCS_OK;
}
void ignore(void* request, ucs_status_t /*status*/, void* table) {
  static_cast<const UcxTable*>(table)->request_free(request);
}

// Rank 0's endpoint, and a UCX link to it that says whatever the test wants.
struct WildPeer {
  explicit WildPeer(const UcxContext& context, const EndpointInfo& info)
      : table(context.table()), link(*UcxLink::open(context)) {
    std::unique_ptr<UcxLink> own = *UcxLink::open(context);
    const std::vector<std::byte> own_address = *own->address();
    endpoint = *UcxEndpoint::create(info, std::move(own), health);
    EXPECT_TRUE(endpoint->connect(*link->address(), UcxLink::Errors::kAreSilent).is_ok());
    EXPECT_TRUE(
        link->connect(own_address, UcxLink::Errors::kAreSilent, {.on_message = &drop}).is_ok());
  }
  static SlotHeader header(uint64_t sequence) {
    SlotHeader header;
    header.epoch = kEpoch;
    header.sequence = sequence;
    header.bytes = 8;
    header.message_left = 8;
    header.flags = kFlagFirst;
    return header;
  }
  static SlotHeader word(uint32_t word, uint64_t sequence) {
    SlotHeader header;
    header.epoch = kEpoch;
    header.sequence = sequence;
    header.flags = kFlagCredit;
    header.tag = word;
    return header;
  }
  void send(const SlotHeader& slot, size_t bytes, size_t header_bytes = kSlotHeaderBytes) {
    std::array<std::byte, 2 * kSlotHeaderBytes> header{};
    encode_slot_header(slot, std::span(header).first<kSlotHeaderBytes>());
    const std::vector<std::byte> payload(bytes);
    const ucs_status_t status =
        link->send(std::span(header).first(header_bytes), payload,
                   {.argument = const_cast<UcxTable*>(&table), .done = &ignore});
    ASSERT_TRUE(status == UCS_OK || status == UCS_INPROGRESS);
  }
  // What the endpoint makes of it.
  Status received() {
    const Deadline deadline = Deadline::after(seconds(5));
    while (!deadline.expired()) {
      link->progress();
      const auto slot = endpoint->poll_receive();
      if (!slot.is_ok()) return slot.status();
      if (slot->has_value()) return Status::ok();
    }
    return Status::busy("nothing came");
  }

  GroupHealth health{0, {"good", "wild"}};
  const UcxTable& table;
  std::unique_ptr<UcxLink> link;
  std::unique_ptr<UcxEndpoint> endpoint;
};

TEST_F(UcxEndpointTest, EveryCorruptedFieldBreaksTheGroup) {
  struct Case {
    void (*spoil)(SlotHeader&);
    const char* message;
  };
  for (const Case& one : {
           Case{[](SlotHeader& header) { header.magic = 0; }, "wrong magic"},
           Case{[](SlotHeader& header) { header.epoch = 1; }, "another group epoch"},
           Case{[](SlotHeader& header) { header.sequence = 5; }, "without a credit"},
           Case{[](SlotHeader& header) { header.sequence = 0; }, "without a credit"},
           Case{[](SlotHeader& header) { header.bytes = 1U << 31; }, "the limit is 128"},
           Case{[](SlotHeader& header) { header.bytes = 7; }, "8 bytes where its header says 7"},
           Case{[](SlotHeader& header) { header.flags = 64; }, "unknown flags"},
           Case{[](SlotHeader& header) { header.released = 1; }, "impossible count of released"},
           Case{[](SlotHeader& header) { header.message_left = 4; },
                "longer than what its message"},
       }) {
    WildPeer wild(*context, info());
    SlotHeader header = WildPeer::header(1);
    one.spoil(header);
    wild.send(header, 8);
    EXPECT_THAT(wild.received().message(), HasSubstr(one.message));
    EXPECT_EQ(wild.health.culprit(), 1);
  }
}

// UCX ends the sends that are under way while the link is destroyed.
TEST_F(UcxEndpointTest, AnEndpointWhoseSendsNobodyTakesIsDestroyed) {
  EndpointInfo many = info();
  many.slots = {.payload_bytes = 64, .count = 1024};
  WildPeer wild(*context, many);
  for (uint32_t i = 0; i < many.slots.count; ++i) {
    const auto slot = wild.endpoint->try_acquire_send();
    ASSERT_TRUE(slot.is_ok() && slot->has_value()) << i;
    ASSERT_TRUE(wild.endpoint->post_send(**slot, {.bytes = 64, .message_left = 64}).is_ok());
  }
  const auto is_free = wild.endpoint->poll_sends();
  ASSERT_TRUE(is_free.is_ok());
  wild.health.fail(1, "is gone");
  wild.endpoint.reset();
}

TEST_F(UcxEndpointTest, HeadersOfAnotherLengthAndUnknownWordsBreakTheGroup) {
  {
    WildPeer wild(*context, info());
    wild.send(WildPeer::header(1), 8, kSlotHeaderBytes + 1);
    EXPECT_THAT(wild.received().message(), HasSubstr("a header of 49 bytes"));
  }
  {
    WildPeer wild(*context, info());
    wild.send(WildPeer::header(1), 8, 0);
    EXPECT_THAT(wild.received().message(), HasSubstr("a header of 0 bytes"));
  }
  {
    WildPeer wild(*context, info());
    wild.send(WildPeer::word(3, 0), 0);
    EXPECT_THAT(wild.received().message(), HasSubstr("unknown word (3)"));
  }
  {
    WildPeer wild(*context, info());
    wild.send(WildPeer::word(1, 5), 0);
    EXPECT_THAT(wild.received().message(), HasSubstr("leaves after slot number 5"));
  }
}

TEST_F(UcxEndpointTest, SlotsAreGivenInOrderHoweverTheyArriveAndNeverTwice) {
  WildPeer wild(*context, info());
  for (const uint64_t sequence : {3, 2, 1}) wild.send(WildPeer::header(sequence), 8);
  ASSERT_TRUE(wild.received().is_ok());
  for (const uint64_t sequence : {2, 3}) {
    const auto slot = wild.endpoint->poll_receive();
    ASSERT_TRUE(slot.is_ok() && slot->has_value()) << sequence;
    EXPECT_EQ((*slot)->index, sequence);
  }
  wild.send(WildPeer::header(2), 8);
  EXPECT_THAT(wild.received().message(), HasSubstr("slot number 2 twice"));
}

// A goodbye may be heard before what was sent ahead of it.
TEST_F(UcxEndpointTest, APeerHasLeftOnlyWhenAllIsHereThatItSaidItSent) {
  WildPeer wild(*context, info());
  wild.send(WildPeer::word(1, 1), 0);
  const auto none = wild.endpoint->poll_receive();
  ASSERT_TRUE(none.is_ok() && !none->has_value());
  wild.health.mark_left(1);
  const auto still_none = wild.endpoint->poll_receive();
  ASSERT_TRUE(still_none.is_ok() && !still_none->has_value()) << still_none.status().message();
  wild.send(WildPeer::header(1), 8);
  EXPECT_TRUE(wild.received().is_ok());
  EXPECT_THAT(wild.received().message(), HasSubstr("has left the group"));
}

TEST_F(UcxEndpointTest, APeerThatLeftWithoutAWordIsNotWaitedForLong) {
  WildPeer wild(*context, info());
  wild.health.mark_left(1);
  const Nanoseconds begin = SteadyClock::instance().now();
  EXPECT_THAT(wild.received().message(), HasSubstr("has left the group"));
  EXPECT_LT(SteadyClock::instance().now() - begin, seconds(1));
}

}  // namespace
}  // namespace shoal::fabric

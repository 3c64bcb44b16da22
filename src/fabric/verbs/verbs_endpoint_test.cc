// Two endpoints over a fake provider whose every move the test decides: any order of events, and
// what devices do wrong. contract_test.cc has the endpoint's contract in every mode.
#include "fabric/verbs/verbs_endpoint.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <optional>
#include <random>

#include "fabric/testing/fake_verbs.h"
#include "fabric/testing/thread_group.h"

namespace shoal::fabric {
namespace {

using Mode = FakeVerbsOptions::Mode;
using testing::AnyOf;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kEpoch = 77;

std::string name_of(Mode mode) {
  switch (mode) {
    case Mode::kLinuxRc:
      return "LinuxRc";
    case Mode::kLinuxUc:
      return "LinuxUc";
    case Mode::kThunderbolt:
      break;
  }
  return "Thunderbolt";
}

// One side of a link.
struct Side {
  Side(int rank, const VerbsProvider& provider, const SlotClass& slots, int cables = 1)
      : health(rank, {"node-0", "node-1"}),
        info{.link = "verbs",
             .self_rank = rank,
             .peer_rank = 1 - rank,
             .peer_name = health.rank_text(1 - rank),
             .epoch = kEpoch,
             .slots = slots} {
    const auto port = [](int i) {
      return VerbsPort{.device = fmt::format("fake{}", i), .gid_index = 3};
    };
    rails.push_back(*VerbsRail::open(provider, port(0), slots));
    const LaneLayout layout = rails[0]->layout();
    for (int i = 1; i < cables && layout.lanes > 1; ++i) {
      const VerbsRail::Plan plan = rails[0]->plan_further(layout.lanes + i - 1);
      rails.push_back(*VerbsRail::open(plan, port(i)));
    }
  }

  GroupHealth health;
  EndpointInfo info;
  std::vector<VerbsRailPtr> rails;
  std::unique_ptr<VerbsEndpoint> endpoint;

  void make_endpoint() {
    endpoint = *VerbsEndpoint::create(info, *VerbsLink::create(std::move(rails)), health);
  }

  // What travels: numbered messages of one slot.
  uint64_t sent = 0;
  uint64_t received = 0;
  std::deque<ReceivedSlot> held;
  // Where large ones are sent from in place; not to be written while the device may read it.
  std::vector<std::byte> memory;
  bool is_memory_read = false;
};

// Slots of one direction, by number: of any length up to a slot class's.
struct Slots {
  int sender = 0;
  const SlotClass& of;

  uint32_t bytes(uint64_t number) const {
    const uint64_t random = (key(number) + 1) * 0x9e3779b97f4a7c15 >> 20;
    const bool is_small = random % 2 == 0;
    return static_cast<uint32_t>(random / 2 % ((is_small ? 300 : of.payload_bytes) + 1));
  }
  std::vector<std::byte> payload(uint64_t number) const {
    return test_bytes(bytes(number), key(number));
  }
  // Three messages of a slot each, then one of three; tags go up, but for a jump now and then.
  SlotNote note(uint64_t number) const {
    const uint64_t third = (number - 1) / 3;
    const bool is_long = third % 2 == 1;
    SlotNote note{.bytes = bytes(number),
                  .is_first = !is_long || number % 3 == 1,
                  .tag = static_cast<uint32_t>(third % 5 == 0 ? number << 24 : number)};
    if (is_long) note.tag = static_cast<uint32_t>(third);
    for (uint64_t i = number; i == number || (is_long && i <= 3 * (third + 1)); ++i) {
      note.message_left += bytes(i);
    }
    return note;
  }

 private:
  uint64_t key(uint64_t number) const { return number * 2 + static_cast<uint64_t>(sender); }
};

FakeVerbsOptions with_devices(FakeVerbsOptions options, int count) {
  options.addresses.resize(static_cast<size_t>(count), "127.0.0.1");
  return options;
}

class Pair {
 public:
  explicit Pair(const FakeVerbsOptions& options,
                const SlotClass& slots = {.payload_bytes = 16384, .count = 4}, int cables = 1)
      : verbs_(std::make_unique<FakeVerbs>(with_devices(options, cables))),
        slots_(slots),
        random_(options.seed * 31 + 7) {
    for (int rank = 0; rank < 2; ++rank)
      sides_.emplace_back(rank, verbs_->provider(), slots, cables);
    for (int rank = 0; rank < 2; ++rank) {
      for (size_t i = 0; i < side(rank).rails.size(); ++i) {
        const Status status = side(rank).rails[i]->connect(side(1 - rank).rails[i]->offer());
        CHECK_MSG(status.is_ok(), status.message().c_str());
      }
    }
    for (Side& side : sides_) {
      side.make_endpoint();
      side.memory.resize(slots.payload_bytes);
      CHECK(side.endpoint->info().registrar->register_memory(side.memory).is_ok());
    }
  }

  FakeVerbs& verbs() { return *verbs_; }
  Side& side(int rank) { return sides_[static_cast<size_t>(rank)]; }
  uint64_t random() { return random_(); }

  Status send(int rank) {
    Side& me = side(rank);
    const Slots slots{.sender = rank, .of = slots_};
    const auto bytes = slots.payload(me.sent + 1);
    const SlotNote note = slots.note(me.sent + 1);
    if (bytes.size() >= size_t{16} * 1024 && !me.is_memory_read) {
      std::ranges::copy(bytes, me.memory.begin());
      const std::span<const std::byte> from = std::span(me.memory).first(bytes.size());
      ASSIGN_OR_RETURN(me.is_memory_read, me.endpoint->try_send(from, note));
      if (me.is_memory_read) ++me.sent;
      return Status::ok();
    }
    ASSIGN_OR_RETURN(const auto slot, me.endpoint->try_acquire_send());
    if (!slot) return Status::ok();
    ++me.sent;
    std::ranges::copy(bytes, slot->payload.begin());
    return me.endpoint->post_send(*slot, note);
  }
  // The same, and it must find room.
  Status send_one(int rank) {
    const uint64_t before = side(rank).sent;
    RETURN_IF_ERROR(send(rank));
    return side(rank).sent > before ? Status::ok() : Status::busy("no room");
  }
  // Spoils what was sent in place as soon as that is allowed.
  Status poll_sends(int rank) {
    Side& me = side(rank);
    ASSIGN_OR_RETURN(const bool is_free, me.endpoint->poll_sends());
    if (!is_free || !me.is_memory_read) return Status::ok();
    std::ranges::fill(me.memory, std::byte{0xee});
    me.is_memory_read = false;
    return Status::ok();
  }
  Status receive(int rank) {
    Side& me = side(rank);
    ASSIGN_OR_RETURN(const auto slot, me.endpoint->poll_receive());
    if (!slot) return Status::ok();
    const Slots slots{.sender = 1 - rank, .of = slots_};
    const auto expected = slots.payload(++me.received);
    EXPECT_TRUE(std::ranges::equal(slot->payload, expected)) << "slot " << me.received;
    const SlotNote note = slots.note(me.received);
    EXPECT_EQ(slot->note.bytes, note.bytes);
    EXPECT_EQ(slot->note.is_first, note.is_first) << "slot " << me.received;
    EXPECT_EQ(slot->note.message_left, note.message_left) << "slot " << me.received;
    EXPECT_EQ(slot->note.tag, note.tag) << "slot " << me.received;
    me.held.push_back(*slot);
    return Status::ok();
  }
  Status release(int rank) {
    Side& me = side(rank);
    if (me.held.empty()) return Status::ok();
    // What was received stays as it is until it is released.
    const uint64_t number = me.received - me.held.size() + 1;
    const Slots slots{.sender = 1 - rank, .of = slots_};
    EXPECT_TRUE(std::ranges::equal(me.held.front().payload, slots.payload(number)));
    RETURN_IF_ERROR(me.endpoint->release_receive(me.held.front()));
    me.held.pop_front();
    return Status::ok();
  }
  // One random thing.
  Status act() {
    const int rank = static_cast<int>(random_() % 2);
    switch (random_() % 5) {
      case 0:
        return send(rank);
      case 1:
        return receive(rank);
      case 2:
        return release(rank);
      case 3:
        return poll_sends(rank);
      default:
        verbs_->step();
        return Status::ok();
    }
  }
  // Everything that was sent, to its receiver.
  Status finish() {
    for (int i = 0; i < 10'000; ++i) {
      while (verbs_->step()) {
      }
      for (int rank = 0; rank < 2; ++rank) {
        RETURN_IF_ERROR(receive(rank));
        RETURN_IF_ERROR(release(rank));
      }
      if (side(0).received == side(1).sent && side(1).received == side(0).sent &&
          side(0).held.empty() && side(1).held.empty()) {
        return Status::ok();
      }
    }
    return Status::busy("messages were lost");
  }
  ~Pair() { close(); }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  // The device works while the endpoints wait for their last messages.
  void close() {
    verbs_->move_when_polled();
    while (!sides_.empty()) {
      sides_.pop_front();
      if (!sides_.empty()) sides_.front().health.mark_left(0);
    }
  }

 private:
  std::unique_ptr<FakeVerbs> verbs_;
  const SlotClass slots_;
  std::mt19937_64 random_;
  std::deque<Side> sides_;
};

FakeVerbsOptions by_hand(Mode mode, uint64_t seed = 1) {
  FakeVerbsOptions options;
  options.mode = mode;
  options.seed = seed;
  options.has_engine_thread = false;
  return options;
}

class VerbsModes : public testing::TestWithParam<Mode> {};
INSTANTIATE_TEST_SUITE_P(Providers, VerbsModes,
                         testing::Values(Mode::kLinuxRc, Mode::kLinuxUc, Mode::kThunderbolt),
                         [](const auto& info) { return name_of(info.param); });

// Under a sanitizer a schedule takes ten times as long.
#if defined(SHOAL_SLOW_TESTS)
constexpr uint64_t kSchedules = 1'000;
#else
constexpr uint64_t kSchedules = 10'000;
#endif

TEST_P(VerbsModes, NoScheduleLosesDoublesReordersOrCorruptsAMessage) {
  uint64_t moved = 0;
  for (uint64_t seed = 1; seed <= kSchedules; ++seed) {
    FakeVerbsOptions options = by_hand(GetParam(), seed);
    options.gives_inline = seed % 2 == 0;
    // One lane and two, one cable and several, in place too, few slots and many.
    const uint32_t bytes = seed % 8 == 1 ? 20 * 1024 : seed % 3 == 0 ? 1024 : 8192;
    const SlotClass slots{.payload_bytes = bytes, .count = 2 + static_cast<uint32_t>(seed % 5)};
    Pair pair(options, slots, 1 + static_cast<int>(seed / 2 % 3));
    Status status;
    for (int i = 0; i < 75 && status.is_ok(); ++i) status = pair.act();
    if (status.is_ok()) status = pair.finish();
    ASSERT_TRUE(status.is_ok()) << "schedule " << seed << ": " << status.message();
    moved += pair.side(0).received + pair.side(1).received;
    pair.close();
    const FakeVerbsCounts counts = pair.verbs().counts();
    ASSERT_THAT(counts.violations, IsEmpty()) << "schedule " << seed;
    ASSERT_TRUE(counts.is_all_gone()) << "schedule " << seed;
    if (testing::Test::HasFailure()) FAIL() << "schedule " << seed;
  }
  EXPECT_GT(moved, 5 * kSchedules);
}

// One direction alone: credits need messages of their own.
TEST_P(VerbsModes, OneSidedTrafficKeepsItsCredits) {
  Pair pair(by_hand(GetParam()));
  while (pair.side(0).sent < 1000) {
    ASSERT_TRUE(pair.send(0).is_ok());
    while (pair.verbs().step()) {
    }
    ASSERT_TRUE(pair.receive(1).is_ok());
    ASSERT_TRUE(pair.release(1).is_ok());
  }
  ASSERT_TRUE(pair.finish().is_ok());
  EXPECT_THAT(pair.verbs().counts().violations, IsEmpty());
}

// A cable that is slow, here one on which nothing moves, gets no more than waits on it already.
TEST(VerbsEndpoint, LargeSlotsTakeTheCableOnWhichTheFewestAreUnderWay) {
  constexpr SlotClass kSlots{.payload_bytes = 16384, .count = 8};
  FakeVerbsOptions options = by_hand(Mode::kLinuxRc);
  Pair pair(options, kSlots, /*cables=*/3);
  Side& me = pair.side(0);
  const auto send_whole = [&] {
    const auto slot = me.endpoint->try_acquire_send();
    ASSERT_TRUE(slot.is_ok() && slot->has_value());
    ASSERT_TRUE(me.endpoint->post_send(**slot, {.bytes = 16384, .message_left = 16384}).is_ok());
  };
  pair.verbs().set_stalled(1, true);
  for (int i = 0; i < 6; ++i) {
    send_whole();
    while (pair.verbs().step()) {
    }
  }
  EXPECT_THAT(pair.verbs().counts().delivered_from, testing::ElementsAre(3, 0, 2));
  pair.verbs().set_stalled(1, false);
  EXPECT_EQ(me.endpoint->info().ports.size(), 3U);
}

// One cable is pulled: the peer is a suspect, and which port it was is said.
TEST(VerbsEndpoint, AFailureOfOneCableIsNamedByItsPort) {
  constexpr SlotClass kSlots{.payload_bytes = 16384, .count = 4};
  FakeVerbsOptions options = by_hand(Mode::kLinuxRc);
  Pair pair(options, kSlots, /*cables=*/2);
  Side& me = pair.side(0);
  for (int i = 0; i < 2; ++i) {
    const auto slot = me.endpoint->try_acquire_send();
    ASSERT_TRUE(slot.is_ok() && slot->has_value());
    ASSERT_TRUE(me.endpoint->post_send(**slot, {.bytes = 16384, .message_left = 16384}).is_ok());
    if (i == 1) pair.verbs().set_link(false);
    while (pair.verbs().step()) {
    }
  }
  for (int i = 0; i < 10; ++i) (void)me.endpoint->try_acquire_send();
  const auto suspicions = me.health.suspicions();
  ASSERT_EQ(suspicions.size(), 1U);
  EXPECT_THAT(suspicions[0].reason, HasSubstr("fake1 port 1"));
}

// Until a fault breaks the group, what arrives is right; then it is named.
void expect_found(const FakeVerbsOptions& options, const testing::Matcher<std::string>& message) {
  int broken = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    FakeVerbsOptions one = options;
    one.seed = seed;
    Pair pair(one);
    Status status;
    for (int i = 0; i < 2000 && status.is_ok(); ++i) status = pair.act();
    if (status.is_ok()) status = pair.finish();
    // When it was the last message that went wrong, nothing came behind it to show that.
    if (status.code() == StatusCode::kGroup) {
      ++broken;
      EXPECT_THAT(status.message(), message) << "seed " << seed;
    }
    if (testing::Test::HasFailure()) FAIL() << "seed " << seed;
  }
  EXPECT_GT(broken, 190);
}

TEST(VerbsEndpoint, ItsInfoNamesThePort) {
  Pair pair(by_hand(Mode::kLinuxRc));
  const std::vector<LinkPort>& ports = pair.side(0).endpoint->info().ports;
  ASSERT_EQ(ports.size(), 1U);
  EXPECT_EQ(ports[0].device, "fake0");
  EXPECT_EQ(ports[0].number, 1);
  EXPECT_EQ(ports[0].gid_index, 3);
  EXPECT_EQ(ports[0].mtu, 1024U);
}

TEST(VerbsEndpoint, ALostMessageIsNoticedByTheNextOne) {
  for (const Mode mode : {Mode::kLinuxUc, Mode::kThunderbolt}) {
    FakeVerbsOptions options = by_hand(mode);
    options.drop_every = 50;
    expect_found(options, AnyOf(HasSubstr("one was lost"), HasSubstr("never sent slot number")));
  }
}

TEST(VerbsEndpoint, OvertakingMessagesAreNoticed) {
  for (const Mode mode : {Mode::kLinuxRc, Mode::kLinuxUc}) {
    FakeVerbsOptions options = by_hand(mode);
    options.swap_every = 10;
    expect_found(options, AnyOf(HasSubstr("overtaken"), HasSubstr("never sent slot number"),
                                HasSubstr("impossible count of released")));
  }
}

TEST(VerbsEndpoint, AShortMessageIsNoticed) {
  FakeVerbsOptions options = by_hand(Mode::kLinuxRc);
  options.short_message_every = 50;
  expect_found(options, AnyOf(HasSubstr("that was cut off"), HasSubstr("sent a message of")));
}

TEST(VerbsEndpoint, ACompletionWithAnErrorMakesThePeerASuspect) {
  FakeVerbsOptions options = by_hand(Mode::kLinuxRc);
  options.bad_completion_every = 20;
  Pair pair(options);
  for (int i = 0; i < 2000; ++i) (void)pair.act();
  for (int rank = 0; rank < 2; ++rank) (void)pair.receive(rank);
  std::vector<GroupHealth::Suspicion> suspicions;
  for (int rank = 0; rank < 2; ++rank) {
    for (const auto& suspicion : pair.side(rank).health.suspicions())
      suspicions.push_back(suspicion);
  }
  ASSERT_FALSE(suspicions.empty());
  EXPECT_THAT(suspicions.front().reason, HasSubstr("fake0 port 1"));
  EXPECT_THAT(suspicions.front().reason, HasSubstr("completion status"));
}

// What a SEND carries beside its bytes is enough of a header: on queue pairs that lose nothing, and
// with few enough slots to tell them apart.
TEST(VerbsEndpoint, AWholeMessageTravelsWithoutAHeaderOnAReliableConnection) {
  const auto delivered = [](Mode mode, uint32_t count) {
    constexpr uint32_t kBytes = 4096;
    Pair pair(by_hand(mode), {.payload_bytes = kBytes, .count = count});
    for (int i = 0; i < 2; ++i) {
      const auto slot = pair.side(0).endpoint->try_acquire_send();
      CHECK(slot.is_ok() && slot->has_value());
      const SlotNote note{.bytes = kBytes, .message_left = kBytes, .tag = 7};
      CHECK(pair.side(0).endpoint->post_send(**slot, note).is_ok());
    }
    while (pair.verbs().step()) {
    }
    return pair.verbs().counts().delivered_bytes;
  };
  constexpr uint32_t kWithHeader = 4096 + kVerbsHeaderBytes;
  EXPECT_EQ(delivered(Mode::kLinuxRc, ShortHeader::kSlotsMax), 2U * 4096);
  EXPECT_EQ(delivered(Mode::kLinuxRc, ShortHeader::kSlotsMax + 1), 2U * kWithHeader);
  EXPECT_EQ(delivered(Mode::kLinuxUc, 8), 2U * kWithHeader);
  EXPECT_EQ(delivered(Mode::kThunderbolt, 8), 2U * 8192);  // whole frames
}

// A slot that waits on a slow cable says how many were released when it was sent: much less than is
// known by now, and more than eight bits ago.
TEST(VerbsEndpoint, ASlotThatComesLateTellsNoWrongCredits) {
  constexpr SlotClass kSlots{.payload_bytes = 8192, .count = 8};
  for (const uint64_t newer : {100U, 150U, 200U, 300U, 600U}) {
    FakeVerbsOptions options = by_hand(Mode::kLinuxRc);
    Pair pair(options, kSlots, /*cables=*/2);
    const auto post = [&](int rank, uint32_t bytes) {
      const auto slot = pair.side(rank).endpoint->try_acquire_send();
      ASSERT_TRUE(slot.is_ok() && slot->has_value());
      const SlotNote note{.bytes = bytes, .message_left = bytes};
      ASSERT_TRUE(pair.side(rank).endpoint->post_send(**slot, note).is_ok());
    };
    const auto step_all = [&] {
      while (pair.verbs().step()) {
      }
    };
    const auto take = [&](int rank) {
      const auto slot = pair.side(rank).endpoint->poll_receive();
      ASSERT_TRUE(slot.is_ok()) << slot.status().message();
      ASSERT_TRUE(slot->has_value());
      ASSERT_TRUE(pair.side(rank).endpoint->release_receive(**slot).is_ok());
    };
    pair.verbs().set_stalled(1, true);
    for (int i = 0; i < 2; ++i) post(1, 8192);  // one through each cable
    step_all();
    take(0);
    for (uint64_t i = 0; i < newer; ++i) {
      post(0, 8);
      step_all();
      take(1);
    }
    pair.verbs().set_stalled(1, false);
    step_all();
    take(0);
    for (uint32_t i = 0; i < kSlots.count; ++i) {  // and credits are as they were
      post(0, 8);
      step_all();
      take(1);
    }
    EXPECT_THAT(pair.verbs().counts().violations, IsEmpty());
  }
}

// Between a message and its answer nothing is posted; when nothing has come, or when the peer would
// lack half of its credits, all is.
TEST(VerbsEndpoint, ReceivesArePostedAgainWhenThereIsTime) {
  for (uint32_t count = 2; count <= 9; ++count) {
    Pair pair(by_hand(Mode::kLinuxRc), {.payload_bytes = 1024, .count = count});
    const auto posted = [&] { return pair.verbs().counts().receives_posted; };
    const uint64_t before = posted();
    const auto take_one = [&] {
      ASSERT_TRUE(pair.send_one(0).is_ok());
      while (pair.verbs().step()) {
      }
      ASSERT_TRUE(pair.receive(1).is_ok());
      ASSERT_TRUE(pair.release(1).is_ok());
    };
    const uint32_t half = (count + 1) / 2;
    for (uint32_t i = 1; i < half; ++i) {
      take_one();
      EXPECT_EQ(posted(), before);
    }
    take_one();
    EXPECT_EQ(posted(), before + half);
    while (pair.verbs().step()) {
    }
    if (half > 1) {
      take_one();
      EXPECT_EQ(posted(), before + half);
      ASSERT_TRUE(pair.receive(1).is_ok());  // nothing
      EXPECT_EQ(posted(), before + half + 1);
    }
    ASSERT_TRUE(pair.finish().is_ok());
  }
}

// Numbers in short headers come round every 256.
TEST(VerbsEndpoint, LongSchedulesOverSeveralCablesLoseNothing) {
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    const uint32_t count = seed % 3 == 0 ? 2 : seed % 3 == 1 ? 8 : 64;
    Pair pair(by_hand(Mode::kLinuxRc, seed), {.payload_bytes = 8192, .count = count},
              2 + static_cast<int>(seed % 2));
    Status status;
    for (int i = 0; i < 20000 && status.is_ok(); ++i) {
      if (i % 50 == 0) pair.verbs().set_stalled(1, pair.random() % 2 == 0);
      status = pair.act();
    }
    pair.verbs().set_stalled(1, false);
    if (status.is_ok()) status = pair.finish();
    ASSERT_TRUE(status.is_ok()) << "schedule " << seed << ": " << status.message();
    EXPECT_THAT(pair.verbs().counts().violations, IsEmpty());
    EXPECT_GT(pair.side(0).received, 256U);
  }
}

TEST(VerbsEndpoint, AWriteIsNotTakenForASend) {
  FakeVerbsOptions options = by_hand(Mode::kLinuxRc);
  options.writes = true;
  Pair pair(options);
  const auto slot = pair.side(0).endpoint->try_acquire_send();
  ASSERT_TRUE(slot.is_ok() && slot->has_value());
  const SlotNote note{.bytes = 8, .message_left = 8};
  ASSERT_TRUE(pair.side(0).endpoint->post_send(**slot, note).is_ok());
  while (pair.verbs().step()) {
  }
  EXPECT_THAT(pair.side(1).endpoint->poll_receive().status().message(),
              HasSubstr("did something else than send"));
}

TEST(VerbsEndpoint, ALinkThatGoesDownEndsRcsSends) {
  Pair pair(by_hand(Mode::kLinuxRc));
  ASSERT_TRUE(pair.send(0).is_ok());
  pair.verbs().set_link(false);
  while (pair.verbs().step()) {
  }
  // The sender looks at its completions when it runs out of credits.
  for (int i = 0; i < 10; ++i) (void)pair.send(0);
  const auto suspicions = pair.side(0).health.suspicions();
  ASSERT_EQ(suspicions.size(), 1U);
  EXPECT_EQ(suspicions[0].rank, 1);
  EXPECT_THAT(suspicions[0].reason, HasSubstr("transport retry counter exceeded"));
}

// Rank 0's endpoint, and queue pairs of a peer that says whatever the test wants.
struct WildPeer {
  static constexpr SlotClass kSlots{.payload_bytes = 128, .count = 2};
  WildPeer() : verbs(by_hand(Mode::kLinuxRc)), good(0, verbs.provider(), kSlots) {
    link = *VerbsRail::open(verbs.provider(), {.device = "fake0", .gid_index = 3}, kSlots);
    CHECK(link->connect(good.rails[0]->offer()).is_ok());
    CHECK(good.rails[0]->connect(link->offer()).is_ok());
    good.make_endpoint();
  }
  ~WildPeer() {
    verbs.move_when_polled();
    good.health.mark_left(1);
  }
  WildPeer(const WildPeer&) = delete;
  WildPeer& operator=(const WildPeer&) = delete;

  static SlotHeader header() {
    return {.bytes = 8, .epoch = kEpoch, .sequence = 1, .message_left = 8, .flags = kFlagFirst};
  }
  // What the endpoint makes of a message with this header, number and length.
  Status received(const SlotHeader& header, uint64_t number, uint32_t bytes) {
    std::byte* from = link->send_slot(0);
    encode_slot_header(header, std::span<std::byte, kSlotHeaderBytes>(from, kSlotHeaderBytes));
    std::memcpy(from + kSlotHeaderBytes, &number, sizeof(number));
    return received({.from = from, .bytes = bytes, .is_signaled = true});
  }
  // The same with a header that goes beside the bytes.
  Status received(uint32_t immediate, uint32_t bytes) {
    return received(
        {.from = link->send_slot(0), .bytes = bytes, .immediate = immediate, .is_signaled = true});
  }
  Status received(const VerbsRail::Send& send) {
    RETURN_IF_ERROR(link->post_send(0, send));
    while (verbs.step()) {
    }
    ASSIGN_OR_RETURN(const auto slot, good.endpoint->poll_receive());
    return slot.has_value() ? Status::ok() : Status::busy("nothing came");
  }

  FakeVerbs verbs;
  Side good;
  VerbsRailPtr link;
};

TEST(VerbsEndpoint, EveryCorruptedFieldBreaksTheGroup) {
  struct Case {
    void (*spoil)(SlotHeader&);
    const char* message;
  };
  for (const Case& one : {
           Case{[](SlotHeader& header) { header.magic = 0; }, "wrong magic"},
           Case{[](SlotHeader& header) { header.epoch = 1; }, "another group epoch"},
           Case{[](SlotHeader& header) { header.sequence = 3; }, "without a credit"},
           Case{[](SlotHeader& header) { header.sequence = 0; }, "without a credit"},
           Case{[](SlotHeader& header) { header.bytes = 1U << 31; }, "the limit is 128"},
           Case{[](SlotHeader& header) { header.bytes = header.message_left = 9; }, "was cut off"},
           Case{[](SlotHeader& header) { header.flags = 64; }, "unknown flags"},
           Case{[](SlotHeader& header) { header.released = 1; }, "impossible count of released"},
           Case{[](SlotHeader& header) { header.message_left = 4; },
                "longer than what its message"},
       }) {
    WildPeer wild;
    SlotHeader header = WildPeer::header();
    one.spoil(header);
    EXPECT_THAT(wild.received(header, 1, kVerbsHeaderBytes + 8).message(), HasSubstr(one.message));
    EXPECT_EQ(wild.good.health.culprit(), 1);
  }
  WildPeer wild;
  EXPECT_TRUE(wild.received(WildPeer::header(), 1, kVerbsHeaderBytes + 8).is_ok());
  EXPECT_THAT(wild.received(WildPeer::header(), 2, kVerbsHeaderBytes + 8).message(),
              HasSubstr("slot number 1 without a credit"));
}

TEST(VerbsEndpoint, EveryCorruptedFieldOfAShortHeaderBreaksTheGroup) {
  const auto word = [](const SlotHeader& header) {
    return ShortHeader::of_slot(header, {})->word();
  };
  SlotHeader second = WildPeer::header();
  second.sequence = 2;
  SlotHeader third = WildPeer::header();
  third.sequence = 3;
  SlotHeader zeroth = WildPeer::header();
  zeroth.sequence = 0;
  SlotHeader released = WildPeer::header();
  released.released = 1;
  struct Case {
    uint32_t word;
    uint32_t bytes;
    const char* message;
  };
  for (const Case& one : {
           Case{word(third), 8, "without a credit"},
           Case{word(zeroth), 8, "without a credit"},
           Case{word(second), 8, "never sent slot number 1"},
           Case{word(released), 8, "impossible count of released"},
           Case{word(WildPeer::header()), 9, "was cut off"},
           Case{word(WildPeer::header()), 150, "of 150 bytes with a short header"},
           Case{ShortHeader::of_credits(0).word(), 1, "was cut off"},
           Case{ShortHeader::of_credits(0).word() | 1, 0, "was cut off"},
       }) {
    WildPeer wild;
    EXPECT_THAT(wild.received(one.word, one.bytes).message(), HasSubstr(one.message));
    EXPECT_EQ(wild.good.health.culprit(), 1);
  }
  WildPeer wild;
  EXPECT_TRUE(wild.received(word(WildPeer::header()), 8).is_ok());
  EXPECT_THAT(wild.received(word(WildPeer::header()), 8).message(),
              HasSubstr("slot number 1 without a credit"));
}

// After the first slot of a long message, a short header means that it goes on.
TEST(VerbsEndpoint, ASlotThatIsLongerThanTheRestOfItsMessageBreaksTheGroup) {
  WildPeer wild;
  SlotHeader first = WildPeer::header();
  first.message_left = 8 + 4;
  ASSERT_TRUE(wild.received(first, 1, kVerbsHeaderBytes + 8).is_ok());
  SlotHeader second = WildPeer::header();
  second.sequence = 2;
  EXPECT_THAT(wild.received(ShortHeader::of_slot(second, {})->word(), 8).message(),
              HasSubstr("longer than what its message has left"));
}

TEST(VerbsEndpoint, MessagesThatAreTooShortOrOutOfTurnBreakTheGroup) {
  for (const uint32_t bytes : {1U, kVerbsHeaderBytes - 1}) {
    WildPeer wild;
    EXPECT_THAT(wild.received(WildPeer::header(), 1, bytes).message(),
                HasSubstr(fmt::format("a message of {} bytes", bytes)));
  }
  for (const uint64_t number : {uint64_t{0}, uint64_t{2}, UINT64_MAX}) {
    WildPeer wild;
    EXPECT_THAT(wild.received(WildPeer::header(), number, kVerbsHeaderBytes + 8).message(),
                HasSubstr("lost, doubled or overtaken"));
  }
}

// Our own device is not the peer's fault.
TEST(VerbsEndpoint, AQueueThatRefusesASendBreaksTheGroupWithThisNodeAsTheCulprit) {
  Pair pair(by_hand(Mode::kLinuxRc));
  pair.verbs().refuse_sends();
  const Status status = pair.send_one(0);
  EXPECT_EQ(status.code(), StatusCode::kGroup);
  EXPECT_THAT(status.message(), HasSubstr("rank 0 (node-0) cannot go on over verbs"));
  EXPECT_EQ(pair.side(0).health.culprit(), 0);
}

// The caller has its memory back when the group fails: nothing is read from it any more.
TEST(VerbsEndpoint, WhatIsSentInPlaceIsNotReadOnceTheGroupHasFailed) {
  constexpr SlotClass kSlots{.payload_bytes = 32768, .count = 4};
  Pair pair(by_hand(Mode::kLinuxRc), kSlots);
  Side& me = pair.side(0);
  const SlotNote note{.bytes = kSlots.payload_bytes, .message_left = kSlots.payload_bytes};
  const auto sent = me.endpoint->try_send(me.memory, note);
  ASSERT_TRUE(sent.is_ok() && *sent);
  const auto is_free = me.endpoint->poll_sends();
  ASSERT_TRUE(is_free.is_ok());
  EXPECT_FALSE(*is_free);
  me.health.fail(1, "is gone");
  EXPECT_FALSE(me.endpoint->poll_sends().is_ok());
  EXPECT_FALSE(pair.verbs().step());
  EXPECT_EQ(pair.verbs().counts().delivered, 0U);
}

// Nor by the device of another cable, when one has broken before.
TEST(VerbsEndpoint, WhatIsSentInPlaceIsNotReadByAnotherCableOnceOneHasBroken) {
  constexpr SlotClass kSlots{.payload_bytes = 32768, .count = 4};
  Pair pair(by_hand(Mode::kLinuxRc), kSlots, /*cables=*/2);
  Side& me = pair.side(0);
  const SlotNote note{.bytes = kSlots.payload_bytes, .message_left = kSlots.payload_bytes};
  pair.verbs().set_stalled(0, true);
  for (int i = 0; i < 2; ++i) {  // one through each cable
    const auto sent = me.endpoint->try_send(me.memory, note);
    ASSERT_TRUE(sent.is_ok() && *sent);
  }
  pair.verbs().set_link(false);
  while (pair.verbs().step()) {
  }
  ASSERT_TRUE(me.endpoint->poll_sends().is_ok());
  ASSERT_EQ(me.health.suspicions().size(), 1U);
  me.health.fail(1, "is gone");
  EXPECT_FALSE(me.endpoint->poll_sends().is_ok());
  pair.verbs().set_link(true);
  pair.verbs().set_stalled(0, false);
  EXPECT_FALSE(pair.verbs().step());
  EXPECT_EQ(pair.verbs().counts().delivered, 0U);
}

TEST(VerbsRail, ASlotClassThatTheProviderCannotHoldIsRefused) {
  const FakeVerbs verbs(by_hand(Mode::kThunderbolt));
  const VerbsPort port{.device = "fake0"};
  const auto link =
      VerbsRail::open(verbs.provider(), port, {.payload_bytes = 1 << 20, .count = 64});
  ASSERT_FALSE(link.is_ok());
  EXPECT_EQ(link.status().code(), StatusCode::kRequest);
  EXPECT_THAT(link.status().message(), HasSubstr("fewer or smaller"));
  EXPECT_FALSE(VerbsRail::open(verbs.provider(), {.device = "gone0"}, {}).is_ok());
  EXPECT_TRUE(verbs.counts().is_all_gone());
}

TEST(VerbsRail, AThunderboltDeviceHasTenQueuePairs) {
  FakeVerbsOptions options = by_hand(Mode::kThunderbolt);
  options.limits_devices = true;
  const FakeVerbs verbs(options);
  std::vector<VerbsRailPtr> links;
  for (int i = 0; i < 5; ++i) {
    auto link = VerbsRail::open(verbs.provider(), {.device = "fake0"}, {});
    ASSERT_TRUE(link.is_ok()) << link.status().message();
    links.push_back(std::move(*link));
  }
  EXPECT_EQ(verbs.counts().queue_pairs, 10);
  EXPECT_EQ(verbs.counts().regions, 10);
  const auto sixth = VerbsRail::open(verbs.provider(), {.device = "fake0"}, {});
  EXPECT_EQ(sixth.status().code(), StatusCode::kNode);
  EXPECT_THAT(sixth.status().message(), HasSubstr("no queue pair"));
  links.clear();
  EXPECT_TRUE(verbs.counts().is_all_gone());
}

TEST(VerbsRail, OffersAreReadAsTheyWereWrittenAndRubbishIsRefused) {
  RailOffer offer{
      .lanes = 2, .frame_bytes = 4096, .qp_type = IBV_QPT_UC, .mtu = IBV_MTU_1024, .lid = 7};
  offer.gid[15] = std::byte{9};
  offer.lane = {{{.qp_number = 5, .first_packet = 6}, {.qp_number = 0xffffff, .first_packet = 1}}};
  offer.nonce = 0x0123456789abcdef;
  const auto bytes = encode_rail_offer(offer);
  const auto back = decode_rail_offer(bytes);
  ASSERT_TRUE(back.is_ok());
  EXPECT_EQ(encode_rail_offer(*back), bytes);
  std::mt19937 random(3);
  for (int i = 0; i < 1000; ++i) {
    auto spoiled = bytes;
    spoiled[random() % 4] ^= std::byte{1};
    EXPECT_FALSE(decode_rail_offer(spoiled).is_ok());
  }
  for (const size_t at : {4U, 16U, 20U, 43U}) {  // lanes, MTU, LID, a queue pair's number
    auto spoiled = bytes;
    spoiled[at] = std::byte{0xff};
    spoiled[at + 1] = std::byte{0xff};
    spoiled[at + 2] = std::byte{0xff};
    EXPECT_FALSE(decode_rail_offer(spoiled).is_ok()) << at;
  }
}

}  // namespace
}  // namespace shoal::fabric

// What keeps queue pairs from coming up, and drivers that do not answer: each is an error that says
// what it is, at the deadline at the latest.
#include "fabric/verbs/verbs_connect.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "fabric/in_process.h"
#include "fabric/link/stream.h"
#include "fabric/testing/fake_verbs.h"
#include "fabric/verbs/bring_up.h"

namespace shoal::fabric {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

InProcessOptions over(const FakeVerbs& verbs) {
  InProcessOptions options;
  options.link = LinkKind::kVerbs;
  options.verbs = verbs.provider();
  return options;
}

// What was left to itself ends once the driver goes on.
void expect_all_gone(FakeVerbs& verbs) {
  verbs.set_hanging(false);
  const Deadline deadline = Deadline::after(seconds(20));
  while (!verbs.counts().is_all_gone() && !deadline.expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_TRUE(verbs.counts().is_all_gone());
  EXPECT_THAT(verbs.counts().violations, testing::IsEmpty());
}

// C70: all is set up well, and nothing comes through.
TEST(VerbsConnect, C70_APathOnWhichNothingComesThroughIsNamedInTime) {
  using Mode = FakeVerbsOptions::Mode;
  for (const Mode mode : {Mode::kLinuxRc, Mode::kLinuxUc, Mode::kThunderbolt}) {
    FakeVerbs verbs{FakeVerbsOptions{.mode = mode}};
    verbs.set_link(false);
    const auto group =
        make_in_process_group(over(verbs), Deadline::after(std::chrono::milliseconds(500)));
    ASSERT_FALSE(group.is_ok());
    EXPECT_THAT(group.status().message(), HasSubstr("over verbs: fake0 port 1, GID 3"));
    EXPECT_THAT(group.status().message(), HasSubstr("does not come through"));
    expect_all_gone(verbs);
  }
}

// C71: both ends take the smaller of the two MTUs; the fake delivers nothing between different
// ones.
TEST(VerbsConnect, C71_PortsWithDifferentMtusUseTheSmallerOne) {
  FakeVerbs verbs{FakeVerbsOptions()};
  constexpr SlotClass kSlots{.payload_bytes = 16384, .count = 4};
  const auto large =
      VerbsRail::open(verbs.provider(), {.device = "fake0", .mtu = IBV_MTU_4096}, kSlots);
  const auto small =
      VerbsRail::open(verbs.provider(), {.device = "fake0", .mtu = IBV_MTU_1024}, kSlots);
  ASSERT_TRUE(large.is_ok() && small.is_ok());
  ASSERT_TRUE((*large)->connect((*small)->offer()).is_ok());
  ASSERT_TRUE((*small)->connect((*large)->offer()).is_ok());
  std::memset((*large)->send_slot(0), 7, 5000);
  ASSERT_TRUE((*large)->post_send(1, {.from = (*large)->send_slot(0), .bytes = 5000}).is_ok());
  std::array<ibv_wc, 1> completion{};
  const Deadline deadline = Deadline::after(seconds(10));
  while (*(*small)->poll_receives(completion) == 0 && !deadline.expired()) {
  }
  EXPECT_EQ(completion[0].byte_len, 5000U);
  EXPECT_EQ(*(*small)->receive(1, 0), std::byte{7});
}

// C73: a group says at its start what the limit is, what it needs and what to do.
TEST(VerbsConnect, C73_ALowLimitOnLockedMemoryIsNamedWithTheRemedy) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit low{.rlim_cur = 65536, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
  FakeVerbs verbs{FakeVerbsOptions{.limits_locked_memory = true}};
  const auto group = make_in_process_group(over(verbs), Deadline::after(seconds(2)));
  setrlimit(RLIMIT_MEMLOCK, &before);
  ASSERT_FALSE(group.is_ok());
  EXPECT_THAT(group.status().message(), HasSubstr("the limit on locked memory is 65536 for all"));
  EXPECT_THAT(group.status().message(), HasSubstr("cannot register "));
  EXPECT_THAT(group.status().message(), HasSubstr("ulimit -l"));
  expect_all_gone(verbs);
}

TEST(VerbsConnect, ADriverThatHangsMakingQueuePairsIsAnErrorAtTheDeadline) {
  FakeVerbs verbs{FakeVerbsOptions()};
  verbs.set_hanging(true);
  const auto group =
      make_in_process_group(over(verbs), Deadline::after(std::chrono::milliseconds(300)));
  ASSERT_FALSE(group.is_ok());
  EXPECT_THAT(group.status().message(), HasSubstr("its driver hangs"));
  expect_all_gone(verbs);
}

// Its peer cannot: what was made must be destroyed again, and that hangs.
TEST(VerbsConnect, ADriverThatHangsAfterAFailureDoesNotHoldTheCaller) {
  FakeVerbs verbs{FakeVerbsOptions()};
  verbs.set_link(false);
  verbs.hang_when_destroying();
  const Nanoseconds begin = SteadyClock::instance().now();
  const auto group =
      make_in_process_group(over(verbs), Deadline::after(std::chrono::milliseconds(300)));
  EXPECT_FALSE(group.is_ok());
  EXPECT_LT(SteadyClock::instance().now() - begin, seconds(20));
  expect_all_gone(verbs);
}

TEST(VerbsConnect, ADriverThatHangsDestroyingQueuePairsDoesNotKeepAGroupFromEnding) {
  FakeVerbs verbs{FakeVerbsOptions()};
  auto group = make_in_process_group(over(verbs), Deadline::after(seconds(60)));
  ASSERT_TRUE(group.is_ok()) << group.status().to_string();
  verbs.set_hanging(true);
  group->clear();
  EXPECT_FALSE(verbs.counts().is_all_gone());
  expect_all_gone(verbs);
}

// ---- Several cables ----

std::optional<SocketAddress> socket_address_of(const std::string& ipv4) {
  SocketAddress address;
  auto& ip = reinterpret_cast<sockaddr_in&>(address.storage);
  ip.sin_family = AF_INET;
  address.bytes = sizeof(ip);
  if (inet_pton(AF_INET, ipv4.c_str(), &ip.sin_addr) != 1) return std::nullopt;
  return address;
}

constexpr SlotClass kWholeSlots{.payload_bytes = 16384, .count = 4};

struct PortAt {
  std::string device;
  std::string address;
  int prefix_bits = 16;
};

// One machine with these ports, besides fake0 with the first rail.
struct Machine {
  Machine(const VerbsProvider& provider, const std::vector<PortAt>& others) {
    search.provider = provider;
    // A right cable has time enough under a sanitizer, on a machine that is busy.
    search.greeting = seconds(2);
    search.time_left = seconds(60);
    for (const PortAt& port : others) {
      search.ports.push_back(
          {.device = port.device, .state = "active", .addresses = {port.address}});
      search.addresses.push_back({port.device, port.address, port.prefix_bits});
    }
    const VerbsPort first{.device = "fake0", .gid_index = 3};
    connection.rails.push_back(*VerbsRail::open(provider, first, kWholeSlots));
  }
  std::vector<std::string> devices() const {
    std::vector<std::string> names;
    for (const VerbsRailPtr& rail : connection.rails) names.push_back(rail->port().device);
    return names;
  }

  RailSearch search;
  VerbsConnection connection;
  Status status;
};

// What rank 0 and rank 1 find, in step.
struct TwoMachines {
  TwoMachines(FakeVerbs& verbs, const std::vector<PortAt>& lower, const std::vector<PortAt>& higher)
      : machines{Machine(verbs.provider(), lower), Machine(verbs.provider(), higher)} {
    auto sockets = make_socket_pair();
    CHECK(sockets.is_ok());
    machines[0].connection.socket = std::move(sockets->first);
    machines[1].connection.socket = std::move(sockets->second);
    for (int rank = 0; rank < 2; ++rank) {
      Machine& here = at(rank);
      here.connection.info.self_rank = rank;
      here.connection.info.peer_rank = 1 - rank;
      CHECK(here.connection.rails[0]->connect(at(1 - rank).connection.rails[0]->offer()).is_ok());
    }
  }
  Machine& at(int rank) { return machines[static_cast<size_t>(rank)]; }
  void run() {
    const auto search = [this](int rank) {
      at(rank).status =
          add_further_rails(at(rank).search, at(rank).connection, Deadline::after(seconds(30)));
    };
    std::thread other(search, 1);
    search(0);
    other.join();
  }

  std::array<Machine, 2> machines;
};

// All in one network, as addresses are that machines give themselves: only the first message tells
// which cable leads where. The order in which pairs are tried has wrong ones first.
TEST(VerbsConnect, CablesBetweenTwoMachinesAreToldApartAndAllUsed) {
  using Mode = FakeVerbsOptions::Mode;
  for (const Mode mode : {Mode::kLinuxRc, Mode::kLinuxUc, Mode::kThunderbolt}) {
    FakeVerbs verbs{FakeVerbsOptions{
        .mode = mode,
        .addresses = {"127.0.0.1", "169.254.1.2", "169.254.1.4", "169.254.1.3", "169.254.1.5"},
        .cables = {0, 1, 2, 2, 1}}};
    {
      TwoMachines two(verbs, {{"fake1", "169.254.1.2"}, {"fake2", "169.254.1.4"}},
                      {{"fake3", "169.254.1.3"}, {"fake4", "169.254.1.5"}});
      two.run();
      for (const Machine& one : two.machines)
        EXPECT_TRUE(one.status.is_ok()) << one.status.message();
      EXPECT_THAT(two.at(0).devices(), testing::ElementsAre("fake0", "fake1", "fake2"));
      EXPECT_THAT(two.at(1).devices(), testing::ElementsAre("fake0", "fake4", "fake3"));
    }
    expect_all_gone(verbs);
  }
}

TEST(VerbsConnect, PortsThatNoCableJoinsAddNothingAndLeaveNothing) {
  FakeVerbs verbs{
      FakeVerbsOptions{.addresses = {"127.0.0.1", "10.0.1.1", "10.0.1.2"}, .cables = {0, 1, 2}}};
  {
    TwoMachines two(verbs, {{"fake1", "10.0.1.1"}}, {{"fake2", "10.0.1.2"}});
    two.run();
    for (const Machine& one : two.machines) {
      EXPECT_TRUE(one.status.is_ok()) << one.status.message();
      EXPECT_THAT(one.devices(), testing::ElementsAre("fake0"));
    }
    EXPECT_LT(two.at(0).search.time_left, seconds(60));
  }
  expect_all_gone(verbs);
}

// One side's port is gone by the time it is its turn: the other hears so, and both go on.
TEST(VerbsConnect, APortThatCannotBeOpenedDoesNotKeepOthersFromBeingUsed) {
  FakeVerbs verbs{
      FakeVerbsOptions{.addresses = {"127.0.0.1", "10.0.1.1", "10.0.1.2"}, .cables = {0, 1, 1}}};
  for (const int broken : {0, 1}) {
    std::array<std::vector<PortAt>, 2> ports = {{{{"fake1", "10.0.1.1"}}, {{"fake2", "10.0.1.2"}}}};
    ports[static_cast<size_t>(broken)].insert(ports[static_cast<size_t>(broken)].begin(),
                                              {"fake7", "10.0.1.7"});
    TwoMachines two(verbs, ports[0], ports[1]);
    two.run();
    for (const Machine& one : two.machines) {
      EXPECT_TRUE(one.status.is_ok()) << one.status.message();
      EXPECT_EQ(one.connection.rails.size(), 2U);
    }
  }
  expect_all_gone(verbs);
}

// Both ranks on one machine have the same ports.
TEST(VerbsConnect, APortIsOneEndOfOneCable) {
  FakeVerbs verbs{
      FakeVerbsOptions{.addresses = {"127.0.0.1", "10.0.1.1", "10.0.1.2"}, .cables = {0, 1, 1}}};
  const std::vector<PortAt> ports = {{"fake1", "10.0.1.1"}, {"fake2", "10.0.1.2"}};
  {
    TwoMachines two(verbs, ports, ports);
    two.run();
    EXPECT_THAT(two.at(0).devices(), testing::ElementsAre("fake0", "fake1"));
    EXPECT_THAT(two.at(1).devices(), testing::ElementsAre("fake0", "fake2"));
  }
  expect_all_gone(verbs);
}

TEST(VerbsConnect, AtMostFourCablesAreUsedAndNoneOfTheFirst) {
  FakeVerbsOptions options;
  options.addresses = {"127.0.0.1"};
  options.cables = {0};
  std::array<std::vector<PortAt>, 2> ports;
  for (int i = 0; i < 10; ++i) {
    options.addresses.push_back(fmt::format("10.0.{}.{}", i / 2, 1 + i % 2));
    options.cables.push_back(1 + i / 2);
    ports[static_cast<size_t>(i % 2)].push_back(
        {fmt::format("fake{}", i + 1), options.addresses.back(), 24});
  }
  FakeVerbs verbs(options);
  std::optional<TwoMachines> made;
  TwoMachines& two = made.emplace(verbs, ports[0], ports[1]);
  two.at(0).connection.in_use.insert(gid_of(*socket_address_of("10.0.0.2")).value());
  two.run();
  EXPECT_THAT(two.at(0).devices(), testing::ElementsAre("fake0", "fake3", "fake5", "fake7"));
  EXPECT_THAT(two.at(1).devices(), testing::ElementsAre("fake0", "fake4", "fake6", "fake8"));
  made.reset();
  expect_all_gone(verbs);
}

TEST(VerbsConnect, APeerThatLeavesOrSendsRubbishEndsTheSearch) {
  FakeVerbs verbs{FakeVerbsOptions{.addresses = {"127.0.0.1", "10.0.1.1", "10.0.1.2"}}};
  struct Case {
    int rank;
    std::vector<uint32_t> sent;
    const char* message;
  };
  // A list of ports is one address of 16 bytes and its prefix.
  const std::vector<uint32_t> one_port = {1, 0, 0, 0xffff0000U, 0x0201000aU, 96 + 16};
  auto rubbish = one_port;
  rubbish.push_back(5);
  auto other_count = one_port;
  other_count.insert(other_count.end(), {UINT32_MAX, 2});
  for (const Case& one : {Case{0, {}, "closed"}, Case{1, {}, "closed"}, Case{0, one_port, "closed"},
                          Case{1, one_port, "closed"}, Case{1, rubbish, "rubbish for the cables"},
                          Case{1, other_count, "found 2 cables where 1 were found here"},
                          Case{1, {9}, "rubbish for its ports"},
                          Case{1, {1, 0, 0, 0, 0, 129}, "rubbish for its ports"}}) {
    TwoMachines two(verbs, {{"fake1", "10.0.1.1"}}, {{"fake1", "10.0.1.1"}});
    Machine& here = two.at(one.rank);
    const int peer = two.at(1 - one.rank).connection.socket.get();
    const std::span<const std::byte> bytes = std::as_bytes(std::span(one.sent));
    ASSERT_EQ(write(peer, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
    shutdown(peer, SHUT_WR);
    here.status = add_further_rails(here.search, here.connection, Deadline::after(seconds(30)));
    EXPECT_THAT(here.status.message(), HasSubstr(one.message)) << one.rank;
  }
  expect_all_gone(verbs);
}

TEST(VerbsConnect, AFirstMessageForAnotherConnectionIsFoundOut) {
  FakeVerbs verbs{FakeVerbsOptions()};
  auto here = VerbsRail::open(verbs.provider(), {.device = "fake0"}, kWholeSlots);
  auto there = VerbsRail::open(verbs.provider(), {.device = "fake0"}, kWholeSlots);
  ASSERT_TRUE(here.is_ok() && there.is_ok());
  ASSERT_TRUE((*here)->connect((*there)->offer()).is_ok());
  ASSERT_TRUE((*there)->connect((*here)->offer()).is_ok());
  RailOffer other = (*there)->offer();
  other.nonce ^= 1;
  const Deadline deadline = Deadline::after(seconds(10));
  std::thread peer([&] { (void)greet(-1, **here, other, Deadline::after(seconds(1))); });
  const Status status = greet(-1, **there, (*here)->offer(), deadline);
  peer.join();
  EXPECT_EQ(status.code(), StatusCode::kGroup);
  EXPECT_THAT(status.message(), HasSubstr("is for another connection"));
  here = Status::request("closed");
  there = Status::request("closed");
  expect_all_gone(verbs);
}

RailCandidate candidate(const std::string& address, uint32_t prefix_bits = 16) {
  const auto socket = socket_address_of(address);
  return {.address = gid_of(socket.value()).value(), .prefix_bits = 96 + prefix_bits};
}

TEST(RailCandidates, ArePortsThatAreUpAndHaveAnAddressHereButTheOneInUse) {
  const std::vector<PortFacts> ports = {
      {.device = "a", .number = 1, .state = "active", .addresses = {"10.0.1.1"}},
      {.device = "a", .number = 2, .state = "active", .addresses = {"10.0.2.1", "10.0.3.1"}},
      {.device = "b", .number = 1, .state = "down", .addresses = {"10.0.4.1"}},
      {.device = "c", .number = 1, .state = "active", .addresses = {"10.0.5.1"}},
      {.device = "d", .number = 1, .state = "active", .addresses = {"fe80::1", "2001:db8::5"}}};
  const std::vector<InterfaceAddress> addresses = {{"a1", "10.0.1.1", 24},
                                                   {"a2", "10.0.3.1", 20},
                                                   {"b", "10.0.4.1", 24},
                                                   {"d", "fe80::1", 64},
                                                   {"d", "2001:db8::5", 64}};
  const auto found = rail_candidates(ports, addresses, {.device = "a", .number = 1});
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0], candidate("10.0.3.1", 20));
  EXPECT_EQ(found[1].prefix_bits, 64U);
  EXPECT_EQ(found[1].address[0], 0x20);
}

TEST(RailCandidates, OnlyPortsInEachOthersNetworkArePaired) {
  const std::vector<RailCandidate> lower = {candidate("10.0.1.1", 24), candidate("10.0.2.1", 24),
                                            candidate("192.0.2.1", 24)};
  const std::vector<RailCandidate> higher = {candidate("10.0.2.2", 24), candidate("10.0.1.2", 16),
                                             candidate("192.0.2.1", 24)};
  // 10.0.1.2/16 and 10.0.1.1/24 are in each other's, 10.0.2.1/24 is not in the first one's view;
  // the last is the same address.
  EXPECT_THAT(rail_pairs(lower, higher), testing::ElementsAre(RailPair{0, 1}, RailPair{1, 0}));
}

TEST(RailCandidates, PairsThatHaveMostInCommonComeFirst) {
  std::vector<RailCandidate> lower;
  std::vector<RailCandidate> higher;
  for (int i = 0; i < 8; ++i) {
    lower.push_back(candidate(fmt::format("169.254.{}.1", i)));
    higher.push_back(candidate(fmt::format("169.254.{}.2", 7 - i)));
  }
  const auto pairs = rail_pairs(lower, higher);
  ASSERT_EQ(pairs.size(), 64U);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(pairs[i], (RailPair{i, 7 - i}));
}

}  // namespace
}  // namespace shoal::fabric

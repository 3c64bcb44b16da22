// Addresses, and groups that form over TCP while strangers knock.
#include "fabric/tcp/tcp_group.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "base/bytes.h"
#include "fabric/in_process.h"
#include "fabric/link/stream.h"
#include "fabric/testing/thread_group.h"

namespace shoal::fabric {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

Deadline soon() { return Deadline::after(seconds(20)); }

// --- C69: addresses ---

TEST(Address, C69EveryWrittenFormIsParsed) {
  struct Case {
    const char* text;
    const char* host;
    uint16_t port;
  };
  for (const Case& one :
       {Case{"localhost:7000", "localhost", 7000}, Case{"10.0.0.1:1", "10.0.0.1", 1},
        Case{"[::1]:65535", "::1", 65535}, Case{"[fe80::1%veth0]:7000", "fe80::1%veth0", 7000}}) {
    const auto address = parse_host_port(one.text);
    ASSERT_TRUE(address.is_ok()) << address.status().message();
    EXPECT_EQ(address->host, one.host);
    EXPECT_EQ(address->port, one.port);
    EXPECT_EQ(to_text(*address), one.text);
  }
}

TEST(Address, C69WrongFormsSayWhatToWrite) {
  EXPECT_THAT(parse_host_port("::1:7000").status().message(),
              HasSubstr("needs brackets, as in [::1]"));
  EXPECT_THAT(parse_host_port("fe80::1").status().message(), HasSubstr("needs brackets"));
  EXPECT_THAT(parse_host_port("host").status().message(), HasSubstr("has no port"));
  EXPECT_THAT(parse_host_port(":70").status().message(), HasSubstr("has no host"));
  EXPECT_THAT(parse_host_port("[::1]").status().message(), HasSubstr("[address]:port"));
  for (const char* text : {"a:", "a:x", "a:65536", "a:-1", "a:7 ", "[::1]:"}) {
    EXPECT_THAT(parse_host_port(text).status().message(), HasSubstr("port must be a number"));
  }
}

TEST(Address, C69AScopeIdIsResolvedAndAnUnknownInterfaceIsNamed) {
  const auto scoped = resolve({.host = "fe80::1%lo", .port = 7}, soon());
  ASSERT_TRUE(scoped.is_ok()) << scoped.status().message();
  const auto& raw = reinterpret_cast<const sockaddr_in6&>(scoped->front().storage);
  EXPECT_EQ(raw.sin6_scope_id, 1);
  EXPECT_EQ(scoped->front().text(), "[fe80::1%lo]:7");
  EXPECT_THAT(resolve({.host = "fe80::1%nosuch0", .port = 7}, soon()).status().message(),
              HasSubstr("no such interface as 'nosuch0'"));
}

bool has_ipv6() { return listen_tcp(HostPort{.host = "::1", .port = 0}).is_ok(); }

TEST(Address, C69AnIpv4PeerReachesAListenerOnAllAddresses) {
  if (!has_ipv6()) GTEST_SKIP() << "this machine has no IPv6";
  const UniqueFd listener = *listen_tcp(HostPort{.host = "::", .port = 0});
  const uint16_t port = local_address(listener.get())->port();
  EXPECT_TRUE(connect_tcp(HostPort{.host = "127.0.0.1", .port = port}, soon()).is_ok());
  EXPECT_TRUE(connect_tcp(HostPort{.host = "::1", .port = port}, soon()).is_ok());
}

TEST(TcpGroup, C69AGroupFormsOverIpv6) {
  if (!has_ipv6()) GTEST_SKIP() << "this machine has no IPv6";
  InProcessOptions options;
  options.size = 3;
  options.link = LinkKind::kTcp;
  options.listen = {.host = "::1", .port = 0};
  const auto fabrics = make_in_process_group(options, soon());
  EXPECT_TRUE(fabrics.is_ok()) << fabrics.status().message();
}

// --- C75: everything that can answer instead of a node ---

GroupSetup setup_of(int rank, int size = 2) {
  GroupSetup setup;
  setup.rank = rank;
  setup.size = size;
  setup.epoch = 5;
  setup.secret.fill(std::byte{1});
  setup.node_name = "node-" + std::to_string(rank);
  return setup;
}

TcpGroupOptions joiner_to(const HostPort& address, int rank = 1, int size = 2) {
  TcpGroupOptions options;
  options.setup = setup_of(rank, size);
  options.rank0 = address;
  options.connect_max = milliseconds(700);
  return options;
}

// A listener that takes connections and answers each with this text.
class FakeService {
 public:
  explicit FakeService(std::string answer) : answer_(std::move(answer)) {
    listener_ = *listen_tcp(HostPort{.host = "127.0.0.1", .port = 0});
    address_ = {.host = "127.0.0.1", .port = local_address(listener_.get())->port()};
    thread_ = std::thread([this] { serve(); });
  }
  ~FakeService() {
    is_over_ = true;
    thread_.join();
  }
  const HostPort& address() const { return address_; }

 private:
  void serve() {
    std::vector<UniqueFd> held;
    while (!is_over_) {
      UniqueFd socket(accept(listener_.get(), nullptr, nullptr));
      if (socket.is_valid()) {
        (void)!send(socket.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
        held.push_back(std::move(socket));
      }
      std::this_thread::sleep_for(milliseconds(2));
    }
  }
  std::string answer_;
  UniqueFd listener_;
  HostPort address_;
  std::atomic<bool> is_over_{false};
  std::thread thread_;
};

std::string failure_to_join(const HostPort& address) {
  const Nanoseconds begin = SteadyClock::instance().now();
  const auto fabric = connect_tcp_group(joiner_to(address), soon());
  EXPECT_FALSE(fabric.is_ok());
  EXPECT_LT(SteadyClock::instance().now() - begin, seconds(10));
  return fabric.status().message();
}

TEST(TcpGroup, C75aAPortInUseIsNamed) {
  const UniqueFd first = *listen_tcp(HostPort{.host = "127.0.0.1", .port = 0});
  const uint16_t port = local_address(first.get())->port();
  const auto second = listen_tcp(HostPort{.host = "127.0.0.1", .port = port});
  EXPECT_THAT(second.status().message(),
              HasSubstr("127.0.0.1:" + std::to_string(port) + " is already in use"));
}

TEST(TcpGroup, C75bAServiceThatNeverAnswersIsNamed) {
  const FakeService mute("");
  EXPECT_THAT(failure_to_join(mute.address()),
              HasSubstr("rank 0 at " + to_text(mute.address()) +
                        " accepted the connection and gave no answer in time"));
}

TEST(TcpGroup, C75cAnHttpServerIsNamed) {
  const FakeService http("HTTP/1.1 400 Bad Request\r\n\r\n");
  EXPECT_THAT(failure_to_join(http.address()), HasSubstr("does not speak Shoal's protocol"));
}

TEST(TcpGroup, C75dAClosedPortIsNamed) {
  UniqueFd listener = *listen_tcp(HostPort{.host = "127.0.0.1", .port = 0});
  const HostPort address{.host = "127.0.0.1", .port = local_address(listener.get())->port()};
  listener.reset();
  EXPECT_THAT(failure_to_join(address), HasSubstr(to_text(address) + ": connection refused"));
}

TEST(TcpGroup, C75eAnAddressThatDoesNotAnswerIsNamed) {
  // A full queue of connections drops further requests, as a black hole does.
  UniqueFd listener(socket(AF_INET, SOCK_STREAM, 0));
  ASSERT_TRUE(listener.is_valid());
  sockaddr_in raw{};
  raw.sin_family = AF_INET;
  raw.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&raw), sizeof(raw)), 0);
  ASSERT_EQ(listen(listener.get(), 0), 0);
  const HostPort address{.host = "127.0.0.1", .port = local_address(listener.get())->port()};
  std::vector<UniqueFd> fillers;
  while (true) {
    auto filler = connect_tcp(address, Deadline::after(milliseconds(200)));
    if (!filler.is_ok()) break;
    fillers.push_back(std::move(*filler));
    ASSERT_LT(fillers.size(), 20);
  }
  EXPECT_THAT(failure_to_join(address), HasSubstr("no answer to the connection request"));
}

TEST(TcpGroup, C75fAnUnknownHostIsNamed) {
  EXPECT_THAT(failure_to_join({.host = "no-such-host.invalid", .port = 7}),
              HasSubstr("unknown host 'no-such-host.invalid'"));
}

// --- C17, C67, C80: strangers at the door of a forming group ---

// Rank 0 of a group of two, forming in a thread.
class FormingGroup {
 public:
  explicit FormingGroup(GroupSetup setup = setup_of(0)) {
    TcpGroupOptions options;
    options.setup = std::move(setup);
    options.listener = *listen_tcp(HostPort{.host = "127.0.0.1", .port = 0});
    options.acceptor.handshake_max = milliseconds(500);
    address_ = {.host = "127.0.0.1", .port = local_address(options.listener.get())->port()};
    thread_ = std::thread([this, moved = std::move(options)]() mutable {
      auto joined = connect_tcp_group(std::move(moved), Deadline::after(seconds(30)));
      status_ = joined.status();
      if (joined.is_ok()) fabric_ = std::move(*joined);
    });
  }
  ~FormingGroup() {
    if (thread_.joinable()) thread_.join();
  }
  const HostPort& address() const { return address_; }
  UniqueFd knock() const { return *connect_tcp(address_, soon()); }
  // The group forms with this rank 1.
  void expect_forms() {
    auto fabric = connect_tcp_group(joiner_to(address_), soon());
    ASSERT_TRUE(fabric.is_ok()) << fabric.status().message();
    thread_.join();
    EXPECT_TRUE(status_.is_ok()) << status_.message();
  }

 private:
  HostPort address_;
  std::thread thread_;
  Status status_;
  std::unique_ptr<Fabric> fabric_;
};

void send_text(int fd, std::string_view text) {
  ASSERT_TRUE(write_all(fd, bytes_of(text), soon()).is_ok());
}

// True when the other side has closed.
bool is_closed_by_peer(int fd) {
  std::array<std::byte, 512> buffer;
  const Deadline deadline = Deadline::after(seconds(5));
  while (!deadline.expired()) {
    const ssize_t done = recv(fd, buffer.data(), buffer.size(), 0);
    if (done == 0 || (done < 0 && errno != EAGAIN)) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

TEST(TcpGroup, C17RubbishIsDroppedAndTheGroupFormsAllTheSame) {
  FormingGroup group;
  // (d) A length of 2^63 in the place of a header; (g) a message cut short; an HTTP request.
  const UniqueFd huge = group.knock();
  send_text(huge.get(), std::string(7, '\xff') + "\x7f");
  EXPECT_TRUE(is_closed_by_peer(huge.get()));
  const UniqueFd http = group.knock();
  send_text(http.get(), "GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(is_closed_by_peer(http.get()));
  UniqueFd truncated = group.knock();
  send_text(truncated.get(), "\x89SHOAL");
  truncated.reset();
  const UniqueFd mute = group.knock();
  EXPECT_TRUE(is_closed_by_peer(mute.get()));
  group.expect_forms();
}

TEST(TcpGroup, C17AHundredSilentConnectionsNeitherBlockNorStay) {
  FormingGroup group;
  std::vector<UniqueFd> silent;
  silent.reserve(100);
  for (int i = 0; i < 100; ++i) silent.push_back(group.knock());
  group.expect_forms();
  // All are closed with the forming, none is left half-open.
  for (const UniqueFd& one : silent) EXPECT_TRUE(is_closed_by_peer(one.get()));
}

TEST(TcpGroup, C67AJoinerOfAnotherVersionIsRefusedAndANewOneTakesItsPlace) {
  FormingGroup group;
  TcpGroupOptions older = joiner_to(group.address());
  older.setup.fabric.program.format = 77;
  const auto refused = connect_tcp_group(std::move(older), soon());
  EXPECT_THAT(refused.status().message(), HasSubstr("runs another version: node-0 has protocol"));
  EXPECT_THAT(refused.status().message(), HasSubstr("node-1 has protocol 3.0, format 77"));
  group.expect_forms();
}

TEST(TcpGroup, AJoinerWithAnotherSecretOrEpochIsRefused) {
  FormingGroup group;
  TcpGroupOptions stranger = joiner_to(group.address());
  stranger.setup.secret.fill(std::byte{2});
  EXPECT_THAT(connect_tcp_group(std::move(stranger), soon()).status().message(),
              HasSubstr("refused: the secret is not this group's"));
  TcpGroupOptions late = joiner_to(group.address());
  late.setup.epoch = 4;
  EXPECT_THAT(connect_tcp_group(std::move(late), soon()).status().message(),
              HasSubstr("the group was formed anew"));
  group.expect_forms();
}

TEST(TcpGroup, C80ASecondNodeInATakenPlaceIsToldAtOnce) {
  // Of a group of three: rank 1 is in and waits for rank 2.
  FormingGroup group(setup_of(0, 3));
  std::thread first([&] {
    auto fabric = connect_tcp_group(joiner_to(group.address(), 1, 3), soon());
    EXPECT_TRUE(fabric.is_ok()) << fabric.status().message();
  });
  std::this_thread::sleep_for(seconds(1));
  const auto second = connect_tcp_group(joiner_to(group.address(), 1, 3), soon());
  EXPECT_EQ(second.status().code(), StatusCode::kBusy);
  EXPECT_THAT(second.status().message(),
              HasSubstr("rank 1 of this group has joined node-0 already"));
  auto third = connect_tcp_group(joiner_to(group.address(), 2, 3), soon());
  EXPECT_TRUE(third.is_ok()) << third.status().message();
  first.join();
}

TEST(Acceptor, OfTwoConnectionsForOnePlaceThatFinishTogetherOneIsTaken) {
  const UniqueFd listener = *listen_tcp(HostPort{.host = "127.0.0.1", .port = 0});
  const HostPort address{.host = "127.0.0.1", .port = local_address(listener.get())->port()};
  bool is_taken = false;
  Acceptor acceptor(listener.get(), setup_of(0), {}, [&](const NodeIdentity&) {
    return is_taken ? Status::busy("taken") : Status::ok();
  });
  std::vector<UniqueFd> sockets;
  std::vector<Handshake> handshakes;
  for (int i = 0; i < 2; ++i) {
    sockets.push_back(*connect_tcp(address, soon()));
    handshakes.push_back(*Handshake::start(
        make_handshake_config(setup_of(1), HandshakeRole::kInitiator, LinkPurpose::kData)));
  }
  // In step: both connections say their last word between two looks of the acceptor.
  size_t accepted = 0;
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < 2; ++i) (void)drive_handshake(sockets[i].get(), handshakes[i]).is_ok();
    if (acceptor.next("waiting", Deadline::after(milliseconds(5))).is_ok()) {
      is_taken = true;
      ++accepted;
    }
  }
  EXPECT_EQ(accepted, 1);
}

TEST(TcpGroup, AGroupThatNobodyJoinsSaysWhoIsMissing) {
  TcpGroupOptions options;
  options.setup = setup_of(0, 3);
  options.listener = *listen_tcp(HostPort{.host = "127.0.0.1", .port = 0});
  const auto fabric = connect_tcp_group(std::move(options), Deadline::after(milliseconds(50)));
  EXPECT_THAT(fabric.status().message(), HasSubstr("waiting for ranks 1, 2 to connect: timed out"));
}

TEST(GroupTable, IsReadBackAndEveryCutOrChangeOfItIsHandled) {
  std::vector<GroupTableRow> rows(3);
  for (size_t i = 0; i < rows.size(); ++i) {
    rows[i].node_name = "node-" + std::to_string(i);
    rows[i].family = i == 0 ? 0 : 4;
    rows[i].port = static_cast<uint32_t>(7000 + i);
  }
  const auto bytes = encode_group_table(rows);
  const auto read = decode_group_table(bytes, 3);
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_EQ((*read)[2].node_name, "node-2");
  EXPECT_EQ((*read)[2].port, 7002);
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    const auto part = decode_group_table(std::span(bytes).first(cut), 3);
    EXPECT_EQ(part.status().code(), StatusCode::kGroup) << cut;
  }
  EXPECT_FALSE(decode_group_table(bytes, 2).is_ok());
  EXPECT_FALSE(decode_group_table(bytes, 4).is_ok());
}

}  // namespace
}  // namespace shoal::fabric

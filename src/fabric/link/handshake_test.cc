#include "fabric/link/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/bytes.h"

namespace shoal::fabric {
namespace {

using testing::HasSubstr;

HandshakeConfig config_of(HandshakeRole role, uint32_t rank, const std::string& name) {
  HandshakeConfig config;
  config.role = role;
  config.secret.fill(std::byte{7});
  config.self.epoch = 42;
  config.self.rank = rank;
  config.self.size = 3;
  config.self.process_id = 1234;
  config.self.boot_id = "boot-" + name;
  config.self.node_name = name;
  config.build = "0.1.0 (abc)";
  return config;
}

// What both sides say in the end.
struct Outcome {
  Status initiator;
  Status responder;
  NodeIdentity initiator_sees;
  NodeIdentity responder_sees;
};

// Moves what one side has to send to the other, in pieces; false when nothing moved.
bool move_bytes(Handshake& from, Handshake& to, Status& to_status, size_t piece) {
  if (from.outgoing().empty()) return false;
  const size_t bytes = std::min({from.outgoing().size(), piece, to.wanted()});
  if (bytes == 0) {
    // The receiver has given up: what is left is lost.
    from.sent(from.outgoing().size());
    return false;
  }
  const auto begin = from.outgoing().first(bytes);
  const std::vector<std::byte> copy(begin.begin(), begin.end());
  from.sent(bytes);
  if (to_status.is_ok()) to_status = to.received(copy);
  return true;
}

Outcome shake(HandshakeConfig initiator, HandshakeConfig responder, size_t piece = 1000) {
  Outcome outcome;
  Handshake a = *Handshake::start(std::move(initiator));
  Handshake b = *Handshake::start(std::move(responder));
  while (move_bytes(a, b, outcome.responder, piece) || move_bytes(b, a, outcome.initiator, piece)) {
  }
  if (!a.is_done() && outcome.initiator.is_ok()) outcome.initiator = Status::group("not done");
  if (!b.is_done() && outcome.responder.is_ok()) outcome.responder = Status::group("not done");
  outcome.initiator_sees = a.peer();
  outcome.responder_sees = b.peer();
  return outcome;
}

Outcome shake_as_usual(const std::function<void(HandshakeConfig&)>& change_initiator,
                       const std::function<void(HandshakeConfig&)>& change_responder = {}) {
  HandshakeConfig initiator = config_of(HandshakeRole::kInitiator, 1, "alpha");
  HandshakeConfig responder = config_of(HandshakeRole::kResponder, 0, "beta");
  if (change_initiator) change_initiator(initiator);
  if (change_responder) change_responder(responder);
  return shake(std::move(initiator), std::move(responder));
}

TEST(Handshake, TwoMembersOfAGroupLearnWhoTheOtherIs) {
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{1000}}) {
    const Outcome outcome = shake(config_of(HandshakeRole::kInitiator, 1, "alpha"),
                                  config_of(HandshakeRole::kResponder, 0, "beta"), piece);
    ASSERT_TRUE(outcome.initiator.is_ok()) << outcome.initiator.message();
    ASSERT_TRUE(outcome.responder.is_ok()) << outcome.responder.message();
    EXPECT_EQ(outcome.responder_sees.node_name, "alpha");
    EXPECT_EQ(outcome.responder_sees.rank, 1);
    EXPECT_EQ(outcome.responder_sees.boot_id, "boot-alpha");
    EXPECT_EQ(outcome.responder_sees.process_id, 1234);
    EXPECT_EQ(outcome.initiator_sees.node_name, "beta");
    EXPECT_EQ(outcome.initiator_sees.rank, 0);
  }
}

TEST(Handshake, EachSideLearnsWhetherTheOtherHasMappedTheMemoryOfAll) {
  for (const bool maps : {false, true}) {
    const auto set = [maps](HandshakeConfig& config) { config.self.maps_memory = maps; };
    const auto set_other = [maps](HandshakeConfig& config) { config.self.maps_memory = !maps; };
    const Outcome outcome = shake_as_usual(set, set_other);
    ASSERT_TRUE(outcome.initiator.is_ok()) << outcome.initiator.message();
    EXPECT_EQ(outcome.responder_sees.maps_memory, maps);
    EXPECT_EQ(outcome.initiator_sees.maps_memory, !maps);
  }
}

// C67: another version is refused on both sides, with both versions and names and what to do.
TEST(Handshake, C67AnotherVersionIsRefusedOnBothSidesNamingBoth) {
  const std::vector<std::function<void(ProtocolVersion&)>> changes = {
      [](ProtocolVersion& version) { version.major = 2; },
      [](ProtocolVersion& version) { version.major = 0; },
      [](ProtocolVersion& version) { version.format = 9; },
  };
  for (const auto& change : changes) {
    const Outcome outcome = shake_as_usual([&](HandshakeConfig& config) {
      change(config.version);
      config.build = "9.9.9-debug";
    });
    for (const Status& status : {outcome.initiator, outcome.responder}) {
      ASSERT_FALSE(status.is_ok());
      EXPECT_THAT(status.message(), HasSubstr("alpha has protocol"));
      EXPECT_THAT(status.message(), HasSubstr("beta has protocol"));
      EXPECT_THAT(status.message(), HasSubstr("build 9.9.9-debug"));
      EXPECT_THAT(status.message(), HasSubstr("build 0.1.0 (abc)"));
      EXPECT_THAT(status.message(), HasSubstr("install the same Shoal on both"));
    }
  }
}

TEST(Handshake, C67AnotherMinorVersionAndBuildWorkTogether) {
  const Outcome outcome = shake_as_usual([](HandshakeConfig& config) {
    config.version.minor = 5;
    config.build = "0.1.7";
  });
  EXPECT_TRUE(outcome.initiator.is_ok()) << outcome.initiator.message();
  EXPECT_TRUE(outcome.responder.is_ok()) << outcome.responder.message();
}

TEST(Handshake, C67AMachineOfTheOtherByteOrderIsRefused) {
  Handshake initiator = *Handshake::start(config_of(HandshakeRole::kInitiator, 1, "alpha"));
  Handshake responder = *Handshake::start(config_of(HandshakeRole::kResponder, 0, "beta"));
  std::vector<std::byte> preamble(initiator.outgoing().begin(), initiator.outgoing().end());
  std::reverse(preamble.begin() + 8, preamble.begin() + 12);
  const Status status = responder.received(preamble);
  EXPECT_THAT(status.message(), HasSubstr("the other byte order (big-endian)"));
}

TEST(Handshake, AnotherSecretIsRefusedOnBothSides) {
  const Outcome outcome =
      shake_as_usual([](HandshakeConfig& config) { config.secret[31] = std::byte{8}; });
  EXPECT_THAT(outcome.responder.message(), HasSubstr("does not know this group's secret"));
  EXPECT_THAT(outcome.initiator.message(), HasSubstr("refused: the secret is not this group's"));
}

TEST(Handshake, AResponderWithoutTheSecretIsNotBelieved) {
  // It accepts anybody: its own proof is what fails.
  Handshake initiator = *Handshake::start(config_of(HandshakeRole::kInitiator, 1, "alpha"));
  HandshakeConfig impostor_config = config_of(HandshakeRole::kResponder, 0, "beta");
  Handshake impostor = *Handshake::start(impostor_config);
  Status impostor_status;
  Status initiator_status;
  move_bytes(initiator, impostor, impostor_status, 1000);
  move_bytes(impostor, initiator, initiator_status, 1000);
  ByteWriter verdict;
  verdict.write(uint32_t{0x52455653});
  verdict.write(uint32_t{0});
  std::vector<std::byte> bytes = verdict.take();
  bytes.resize(Handshake::kVerdictBytes);
  ASSERT_TRUE(initiator.received(bytes).is_ok());
  const std::vector<std::byte> proof(Handshake::kProofBytes);
  EXPECT_THAT(initiator.received(proof).message(), HasSubstr("does not know this group's secret"));
}

TEST(Handshake, AReplayedProofIsWorthless) {
  HandshakeConfig config = config_of(HandshakeRole::kInitiator, 1, "alpha");
  Handshake initiator = *Handshake::start(config);
  Handshake first = *Handshake::start(config_of(HandshakeRole::kResponder, 0, "beta"));
  Handshake second = *Handshake::start(config_of(HandshakeRole::kResponder, 0, "beta"));
  const std::vector<std::byte> preamble(initiator.outgoing().begin(), initiator.outgoing().end());
  initiator.sent(preamble.size());
  ASSERT_TRUE(first.received(preamble).is_ok());
  ASSERT_TRUE(second.received(preamble).is_ok());
  ASSERT_TRUE(initiator.received(first.outgoing()).is_ok());
  const std::vector<std::byte> proof(initiator.outgoing().begin(), initiator.outgoing().end());
  EXPECT_TRUE(first.received(proof).is_ok());
  EXPECT_THAT(second.received(proof).message(), HasSubstr("does not know this group's secret"));
}

TEST(Handshake, AReflectedPreambleIsRefused) {
  Handshake initiator = *Handshake::start(config_of(HandshakeRole::kInitiator, 1, "alpha"));
  const std::vector<std::byte> own(initiator.outgoing().begin(), initiator.outgoing().end());
  EXPECT_THAT(initiator.received(own).message(), HasSubstr("wrong role"));
}

TEST(Handshake, EveryWrongIdentityIsRefusedOnBothSidesWithTheReason) {
  struct Case {
    std::function<void(HandshakeConfig&)> change;
    const char* message;
  };
  for (const Case& one : {
           Case{[](HandshakeConfig& config) { config.self.epoch = 43; }, "group epoch is 43"},
           Case{[](HandshakeConfig& config) { config.self.size = 4; }, "told of 4 ranks"},
           Case{[](HandshakeConfig& config) { config.self.rank = 3; }, "rank 3 is impossible"},
           Case{[](HandshakeConfig& config) { config.self.rank = 0; }, "rank 0 is impossible"},
           Case{[](HandshakeConfig& config) { config.self.slots.count = 2; }, "2 slots of"},
           Case{[](HandshakeConfig& config) { config.self.listen_port = 70000; }, "port"},
           Case{[](HandshakeConfig& config) { config.self.purpose = static_cast<LinkPurpose>(3); },
                "purpose"},
       }) {
    const Outcome outcome = shake_as_usual(one.change);
    EXPECT_THAT(outcome.responder.message(), HasSubstr(one.message));
    EXPECT_THAT(outcome.initiator.message(), HasSubstr("refused: "));
    EXPECT_THAT(outcome.initiator.message(), HasSubstr(one.message));
  }
}

// C80: the second one is told at once, and by whom the place is taken.
TEST(Handshake, C80ABusyResponderSaysSoAtOnce) {
  const Outcome outcome = shake_as_usual({}, [](HandshakeConfig& config) {
    config.accept = [](const NodeIdentity&) { return Status::busy("in use by gamma since 12:00"); };
  });
  EXPECT_EQ(outcome.initiator.code(), StatusCode::kBusy);
  EXPECT_THAT(outcome.initiator.message(), HasSubstr("in use by gamma since 12:00"));
  EXPECT_EQ(outcome.responder.code(), StatusCode::kBusy);
}

TEST(Handshake, AnotherProtocolIsToldByItsFirstBytes) {
  Handshake initiator = *Handshake::start(config_of(HandshakeRole::kInitiator, 1, "alpha"));
  const Status status = initiator.received(bytes_of("HTTP/1.1 400 Bad Request\r\n"));
  EXPECT_THAT(status.message(), HasSubstr("does not speak Shoal's protocol"));
  EXPECT_THAT(status.message(), HasSubstr("HTTP/1.1 400 Bad"));
}

TEST(Handshake, ForeignNamesAreMadePrintable) {
  const Outcome outcome =
      shake_as_usual([](HandshakeConfig& config) { config.self.node_name = "a\x1b[31m\nb"; });
  EXPECT_EQ(outcome.responder_sees.node_name, "a?[31m?b");
}

}  // namespace
}  // namespace shoal::fabric

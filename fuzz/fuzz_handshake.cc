// Feeds foreign bytes to both sides of the handshake, with and without a valid proof.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "fabric/link/handshake.h"

namespace {

using shoal::fabric::Handshake;
using shoal::fabric::HandshakeConfig;
using shoal::fabric::HandshakeRole;
using Bytes = std::span<const std::byte>;

HandshakeConfig make_config(HandshakeRole role, uint32_t rank) {
  HandshakeConfig config;
  config.role = role;
  config.secret.fill(std::byte{9});
  config.self.epoch = 1;
  config.self.rank = rank;
  config.self.size = 2;
  config.self.node_name = "fuzz";
  config.self.boot_id = "boot";
  return config;
}

// The handshake's whole input is foreign.
void feed(HandshakeRole role, Bytes bytes) {
  auto handshake = Handshake::start(make_config(role, 0));
  if (!handshake.is_ok()) return;
  while (!bytes.empty() && handshake->wanted() > 0) {
    const size_t count = std::min(handshake->wanted(), bytes.size());
    if (!handshake->received(bytes.first(count)).is_ok()) return;
    bytes = bytes.subspan(count);
  }
}

// What a peer says that knows the secret, and is still not to be trusted: all fields come from the
// input, only the proof over them and what would end the handshake at once are right.
class ForeignPeer {
 public:
  explicit ForeignPeer(Bytes input) : input_(input) {}

  // `right` with other fields behind magic, byte order, versions and role.
  std::vector<std::byte> preamble(Bytes right) {
    constexpr size_t kFixedBytes = 24;
    std::vector<std::byte> message(right.begin(), right.end());
    const Bytes fields = take(message.size() - kFixedBytes);
    std::ranges::copy(fields, message.begin() + kFixedBytes);
    return message;
  }
  std::vector<std::byte> verdict() {
    constexpr uint32_t kMagic = 0x52455653;  // "SVER"
    const Bytes first = take(1);
    const uint32_t code = first.empty() ? 0 : static_cast<uint32_t>(first[0]);
    shoal::ByteWriter writer;
    writer.write(kMagic);
    writer.write(code < 200 ? 0U : code);
    writer.write_bytes(filled(Handshake::kVerdictBytes - writer.bytes().size()));
    return writer.take();
  }
  // `initiator` and `responder` are the preambles as they were sent.
  std::vector<std::byte> proof(std::string_view label, Bytes initiator, Bytes responder) {
    const std::vector<std::byte> body =
        filled(Handshake::kProofBytes - sizeof(shoal::fabric::MessageMac));
    const auto mac =
        shoal::fabric::message_mac(make_config(HandshakeRole::kInitiator, 1).secret,
                                   {shoal::bytes_of(label), initiator, responder, body});
    std::vector<std::byte> message(mac.begin(), mac.end());
    message.insert(message.end(), body.begin(), body.end());
    return message;
  }

 private:
  Bytes take(size_t count) {
    const Bytes taken = input_.first(std::min(count, input_.size()));
    input_ = input_.subspan(taken.size());
    return taken;
  }
  // So many bytes, zeros where the input ends.
  std::vector<std::byte> filled(size_t count) {
    const Bytes taken = take(count);
    std::vector<std::byte> bytes(taken.begin(), taken.end());
    bytes.resize(count);
    return bytes;
  }

  Bytes input_;
};

std::vector<std::byte> said_by(const Handshake& handshake) {
  return {handshake.outgoing().begin(), handshake.outgoing().end()};
}

// Whoever ends the handshake has checked the peer against what it is itself.
void check_peer(const Handshake& handshake, uint32_t own_rank) {
  if (!handshake.is_done()) return;
  CHECK(handshake.peer().epoch == 1 && handshake.peer().size == 2);
  CHECK(handshake.peer().rank == 1 - own_rank && handshake.peer().listen_port <= 65535);
}

void feed_proven_to_responder(Bytes bytes) {
  auto responder = Handshake::start(make_config(HandshakeRole::kResponder, 0));
  auto initiator = Handshake::start(make_config(HandshakeRole::kInitiator, 1));
  if (!responder.is_ok() || !initiator.is_ok()) return;
  ForeignPeer peer(bytes);
  const auto preamble = peer.preamble(initiator->outgoing());
  if (!responder->received(preamble).is_ok()) return;
  const auto answer = said_by(*responder);
  const auto proof = peer.proof("shoal link 1 initiator", preamble, answer);
  if (!responder->received(proof).is_ok()) return;
  if (!responder->received(peer.verdict()).is_ok()) return;
  responder->sent(responder->outgoing().size());
  check_peer(*responder, 0);
}

void feed_proven_to_initiator(Bytes bytes) {
  auto responder = Handshake::start(make_config(HandshakeRole::kResponder, 0));
  auto initiator = Handshake::start(make_config(HandshakeRole::kInitiator, 1));
  if (!responder.is_ok() || !initiator.is_ok()) return;
  const auto preamble = said_by(*initiator);
  if (!responder->received(preamble).is_ok()) return;
  ForeignPeer peer(bytes);
  const auto answer = peer.preamble(responder->outgoing());
  if (!initiator->received(answer).is_ok()) return;
  if (!initiator->received(peer.verdict()).is_ok()) return;
  const auto proof = peer.proof("shoal link 1 responder", preamble, answer);
  if (!initiator->received(proof).is_ok()) return;
  initiator->sent(initiator->outgoing().size());
  check_peer(*initiator, 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (bytes.empty()) return 0;
  switch (static_cast<uint8_t>(bytes[0]) % 4) {
    case 0:
      feed(HandshakeRole::kResponder, bytes.subspan(1));
      break;
    case 1:
      feed(HandshakeRole::kInitiator, bytes.subspan(1));
      break;
    case 2:
      feed_proven_to_responder(bytes.subspan(1));
      break;
    default:
      feed_proven_to_initiator(bytes.subspan(1));
  }
  return 0;
}

// Feeds foreign bytes to both sides of the handshake, with and without a valid proof.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "base/bytes.h"
#include "fabric/link/handshake.h"

namespace {

using shoal::fabric::Handshake;
using shoal::fabric::HandshakeConfig;
using shoal::fabric::HandshakeRole;

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
void feed(HandshakeRole role, std::span<const std::byte> bytes) {
  auto handshake = Handshake::start(make_config(role, 0));
  if (!handshake.is_ok()) return;
  while (!bytes.empty() && handshake->wanted() > 0) {
    const size_t count = std::min(handshake->wanted(), bytes.size());
    if (!handshake->received(bytes.first(count)).is_ok()) return;
    bytes = bytes.subspan(count);
  }
}

// A peer that knows the secret, and is still not to be trusted: preamble fields and identity come
// from the input, the proof over them is right.
void feed_proven(std::span<const std::byte> bytes) {
  auto responder = Handshake::start(make_config(HandshakeRole::kResponder, 0));
  auto initiator = Handshake::start(make_config(HandshakeRole::kInitiator, 1));
  if (!responder.is_ok() || !initiator.is_ok()) return;
  std::vector<std::byte> preamble(initiator->outgoing().begin(), initiator->outgoing().end());
  // Behind magic, byte order, versions and role.
  constexpr size_t kFixedBytes = 24;
  const size_t fields = std::min(bytes.size(), preamble.size() - kFixedBytes);
  std::ranges::copy(bytes.first(fields), preamble.begin() + kFixedBytes);
  bytes = bytes.subspan(fields);
  if (!responder->received(preamble).is_ok()) return;
  const std::vector<std::byte> answer(responder->outgoing().begin(), responder->outgoing().end());
  std::vector<std::byte> body(Handshake::kProofBytes - sizeof(shoal::fabric::MessageMac));
  std::ranges::copy(bytes.first(std::min(bytes.size(), body.size())), body.begin());
  const auto mac = shoal::fabric::message_mac(
      make_config(HandshakeRole::kInitiator, 1).secret,
      {shoal::bytes_of("shoal link 1 initiator"), preamble, answer, body});
  std::vector<std::byte> proof(mac.begin(), mac.end());
  proof.insert(proof.end(), body.begin(), body.end());
  (void)responder->received(proof).is_ok();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (bytes.empty()) return 0;
  switch (static_cast<uint8_t>(bytes[0]) % 3) {
    case 0:
      feed(HandshakeRole::kResponder, bytes.subspan(1));
      break;
    case 1:
      feed(HandshakeRole::kInitiator, bytes.subspan(1));
      break;
    default:
      feed_proven(bytes.subspan(1));
  }
  return 0;
}

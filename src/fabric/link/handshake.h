// Handshake: how two nodes prove to each other that they may share a link, without I/O.
//
// Both sides send a preamble (versions, byte order, name, nonce), then prove knowledge of the
// group's secret by an HMAC over both preambles and their own identity, then say whether they
// accept the other's identity. Every message has a fixed size, and nothing but the preamble is
// parsed before the proof holds. The bytes are specified in docs/fabric.md. The caller moves bytes:
// see drive_handshake() in stream.h. Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/endpoint.h"
#include "fabric/link/secret.h"

namespace shoal::fabric {

// Raised when the bytes on a link change: major for changes that an older node cannot follow.
struct ProtocolVersion {
  uint16_t major = 3;
  uint16_t minor = 0;
  // Of what is computed and sent over the link (step descriptors, activations).
  uint32_t format = 1;
  bool operator==(const ProtocolVersion&) const = default;
};

// What a connection is for.
enum class LinkPurpose : uint32_t {
  kLiveness = 1,  // of a pair; to rank 0 it also carries the group's addresses
  kData = 2,
};

// What a node says of itself once its proof holds.
struct NodeIdentity {
  uint64_t epoch = 0;
  uint32_t rank = 0;
  uint32_t size = 0;  // of the group
  LinkPurpose purpose = LinkPurpose::kLiveness;
  uint32_t listen_port = 0;  // where higher ranks reach it; 0: nowhere
  uint64_t process_id = 0;
  SlotClass slots;
  bool maps_memory = false;  // has mapped the memory of all ranks (shm/mapped_memory.h)
  std::string boot_id;       // at most 40 bytes
  std::string node_name;     // at most 63 bytes; filled in from the preamble
};

enum class HandshakeRole { kInitiator, kResponder };

struct HandshakeConfig {
  HandshakeRole role = HandshakeRole::kInitiator;
  LinkSecret secret{};
  NodeIdentity self;
  std::string build = "unknown";  // for people, never compared; at most 40 bytes are told
  ProtocolVersion version;
  // What the other side must be; its own rank is checked where it is known.
  int expected_rank = -1;
  // More conditions on an authenticated peer: a status that is not ok is told to the peer (kBusy as
  // busy) and ends the handshake.
  std::function<Status(const NodeIdentity&)> accept;
};

class Handshake {
 public:
  static constexpr size_t kPreambleBytes = 160;
  static constexpr size_t kProofBytes = 512;
  static constexpr size_t kVerdictBytes = 256;

  static Result<Handshake> start(HandshakeConfig config);

  // Bytes to send now, and how many of them went.
  std::span<const std::byte> outgoing() const { return std::span(out_).subspan(out_sent_); }
  void sent(size_t bytes);
  // How many bytes the next message still lacks; 0 when nothing is awaited.
  size_t wanted() const { return wanted_ - in_.size(); }
  // Takes at most wanted() bytes. A failure is final; outgoing() may still hold a refusal to send.
  Status received(std::span<const std::byte> bytes);

  // Both sides have accepted, and everything is sent.
  bool is_done() const { return state_ == State::kDone && outgoing().empty(); }
  bool has_heard() const { return has_heard_; }
  // After is_done().
  const NodeIdentity& peer() const { return peer_; }
  // "node-1", once the preamble is in; else "".
  const std::string& peer_name() const { return peer_.node_name; }

 private:
  enum class State { kPreamble, kProof, kVerdict, kDone, kFailed };

  explicit Handshake(HandshakeConfig config) : config_(std::move(config)) {}
  bool is_initiator() const { return config_.role == HandshakeRole::kInitiator; }
  Status take_message();
  Status take_preamble();
  Status take_proof();
  Status take_verdict();
  Status check_identity();
  void send_preamble();
  void send_proof();
  void send_verdict(uint32_t code, std::string_view text);
  MessageMac proof_mac(HandshakeRole role, std::span<const std::byte> body) const;
  void await(State state);

  HandshakeConfig config_;
  State state_ = State::kPreamble;
  std::array<std::byte, kPreambleBytes> own_preamble_{};
  std::array<std::byte, kPreambleBytes> peer_preamble_{};
  std::vector<std::byte> out_;
  size_t out_sent_ = 0;
  std::vector<std::byte> in_;
  size_t wanted_ = 0;
  bool has_heard_ = false;
  NodeIdentity peer_;
};

}  // namespace shoal::fabric

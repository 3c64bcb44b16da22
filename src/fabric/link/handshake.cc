#include "fabric/link/handshake.h"

#include <algorithm>
#include <cstring>

#include "base/bytes.h"
#include "fabric/link/printable.h"

namespace shoal::fabric {
namespace {

constexpr std::string_view kMagic("\x89SHOAL\r\n", 8);
constexpr uint32_t kByteOrderMark = 0x01020304;
constexpr uint32_t kByteOrderSwapped = 0x04030201;
constexpr uint32_t kVerdictMagic = 0x52455653;  // "SVER"
constexpr size_t kNonceBytes = 32;
constexpr size_t kNameBytes = 64;
constexpr size_t kBuildBytes = 40;
constexpr size_t kBootIdBytes = 40;
constexpr size_t kVerdictTextBytes = Handshake::kVerdictBytes - 8;
constexpr size_t kMacBytes = sizeof(MessageMac);
constexpr size_t kBodyBytes = Handshake::kProofBytes - kMacBytes;

// Flags of an identity; a node without them, of an older minor version, sends zeros.
constexpr uint32_t kFlagMapsMemory = 1;

// Codes of a verdict.
constexpr uint32_t kAccepted = 0;
constexpr uint32_t kRefused = 1;
constexpr uint32_t kRefusedBusy = 2;

// Text cut or filled up with zeros to `bytes`, the last byte always zero.
void write_text(ByteWriter& writer, std::string_view text, size_t bytes) {
  std::string field(text.substr(0, bytes - 1));
  field.resize(bytes, '\0');
  writer.write_bytes(bytes_of(field));
}

// A field of write_text as printable ASCII: foreign text goes to logs and terminals.
std::string read_text(std::span<const std::byte> field) {
  const std::string_view text = text_of(field);
  return printable(text.substr(0, text.find('\0')));
}

std::string version_text(const ProtocolVersion& version, std::string_view build) {
  return "protocol " + std::to_string(version.major) + "." + std::to_string(version.minor) +
         ", format " + std::to_string(version.format) + ", build " + std::string(build);
}

std::string_view role_label(HandshakeRole role) {
  return role == HandshakeRole::kInitiator ? "shoal link 1 initiator" : "shoal link 1 responder";
}

struct Preamble {
  uint32_t byte_order = 0;
  ProtocolVersion version;
  uint32_t role = 0;
  std::string node_name;
  std::string build;
};

Preamble parse_preamble(std::span<const std::byte> bytes) {
  CHECK(bytes.size() == Handshake::kPreambleBytes);
  ByteReader reader(bytes);
  Preamble preamble;
  CHECK(reader.skip(kMagic.size()).is_ok());
  preamble.byte_order = *reader.read<uint32_t>();
  preamble.version.major = *reader.read<uint16_t>();
  preamble.version.minor = *reader.read<uint16_t>();
  preamble.version.format = *reader.read<uint32_t>();
  preamble.role = *reader.read<uint32_t>();
  CHECK(reader.skip(kNonceBytes).is_ok());
  preamble.node_name = read_text(*reader.read_bytes(kNameBytes));
  preamble.build = read_text(*reader.read_bytes(kBuildBytes));
  CHECK(reader.left() == 0);
  return preamble;
}

uint32_t role_number(HandshakeRole role) { return role == HandshakeRole::kInitiator ? 1 : 2; }

}  // namespace

Result<Handshake> Handshake::start(HandshakeConfig config) {
  Handshake handshake(std::move(config));
  const HandshakeConfig& own = handshake.config_;
  ASSIGN_OR_RETURN(const LinkSecret nonce, make_secret());
  ByteWriter writer;
  writer.write_bytes(bytes_of(kMagic));
  writer.write(kByteOrderMark);
  writer.write(own.version.major);
  writer.write(own.version.minor);
  writer.write(own.version.format);
  writer.write(role_number(own.role));
  writer.write_bytes(nonce);
  write_text(writer, own.self.node_name, kNameBytes);
  write_text(writer, own.build, kBuildBytes);
  CHECK(writer.bytes().size() == kPreambleBytes);
  std::ranges::copy(writer.bytes(), handshake.own_preamble_.begin());
  if (handshake.is_initiator()) handshake.send_preamble();
  handshake.await(State::kPreamble);
  return handshake;
}

void Handshake::await(State state) {
  state_ = state;
  in_.clear();
  switch (state) {
    case State::kPreamble:
      wanted_ = kPreambleBytes;
      break;
    case State::kProof:
      wanted_ = kProofBytes;
      break;
    case State::kVerdict:
      wanted_ = kVerdictBytes;
      break;
    case State::kDone:
    case State::kFailed:
      wanted_ = 0;
      break;
  }
}

void Handshake::sent(size_t bytes) {
  CHECK(bytes <= outgoing().size());
  out_sent_ += bytes;
}

Status Handshake::received(std::span<const std::byte> bytes) {
  CHECK(bytes.size() <= wanted());
  has_heard_ = has_heard_ || !bytes.empty();
  in_.insert(in_.end(), bytes.begin(), bytes.end());
  if (state_ == State::kPreamble) {
    // A wrong service is told apart by its first byte.
    const size_t known = std::min(in_.size(), kMagic.size());
    if (std::memcmp(in_.data(), kMagic.data(), known) != 0) {
      const std::string begin = read_text(std::span(in_).first(std::min<size_t>(in_.size(), 16)));
      await(State::kFailed);
      return Status::group("does not speak Shoal's protocol (it sent \"" + begin + "\")");
    }
  }
  if (wanted() > 0) return Status::ok();
  Status status = take_message();
  if (!status.is_ok()) await(State::kFailed);
  return status;
}

Status Handshake::take_message() {
  switch (state_) {
    case State::kPreamble:
      return take_preamble();
    case State::kProof:
      return take_proof();
    case State::kVerdict:
      return take_verdict();
    case State::kDone:
    case State::kFailed:
      break;
  }
  CHECK_MSG(false, "bytes after the end of a handshake");
}

Status Handshake::take_preamble() {
  std::ranges::copy(in_, peer_preamble_.begin());
  const Preamble preamble = parse_preamble(in_);
  peer_.node_name = preamble.node_name;
  // The peer learns our version before it is refused, so that both sides can name both.
  if (!is_initiator()) send_preamble();
  if (preamble.byte_order == kByteOrderSwapped) {
    return Status::group("is a machine of the other byte order (big-endian): it cannot share a " +
                         std::string("group with ") + config_.self.node_name);
  }
  const ProtocolVersion& own = config_.version;
  if (preamble.byte_order != kByteOrderMark || preamble.version.major != own.major ||
      preamble.version.format != own.format) {
    return Status::group("runs another version: " + preamble.node_name + " has " +
                         version_text(preamble.version, preamble.build) + "; " +
                         config_.self.node_name + " has " + version_text(own, config_.build) +
                         ": install the same Shoal on both");
  }
  const HandshakeRole other =
      is_initiator() ? HandshakeRole::kResponder : HandshakeRole::kInitiator;
  if (preamble.role != role_number(other)) {
    return Status::group("answered in the wrong role: is this node connecting to itself?");
  }
  if (is_initiator()) {
    send_proof();
    await(State::kVerdict);
  } else {
    await(State::kProof);
  }
  return Status::ok();
}

// The initiator proves first: a stranger gets nothing to guess the secret from. Order of messages:
// proof of the initiator; verdict and proof of the responder; verdict of the initiator.
Status Handshake::take_proof() {
  const std::span<const std::byte> message(in_);
  const HandshakeRole other =
      is_initiator() ? HandshakeRole::kResponder : HandshakeRole::kInitiator;
  const auto body = message.subspan(kMacBytes);
  if (!is_same_mac(message.first(kMacBytes), proof_mac(other, body))) {
    const std::string text = "does not know this group's secret";
    send_verdict(kRefused, "the secret is not this group's");
    return Status::group(text);
  }
  ByteReader reader(body);
  peer_.epoch = *reader.read<uint64_t>();
  peer_.rank = *reader.read<uint32_t>();
  peer_.size = *reader.read<uint32_t>();
  peer_.purpose = static_cast<LinkPurpose>(*reader.read<uint32_t>());
  peer_.listen_port = *reader.read<uint32_t>();
  peer_.process_id = *reader.read<uint64_t>();
  peer_.slots.payload_bytes = *reader.read<uint32_t>();
  peer_.slots.count = *reader.read<uint32_t>();
  peer_.boot_id = read_text(*reader.read_bytes(kBootIdBytes));
  peer_.maps_memory = (*reader.read<uint32_t>() & kFlagMapsMemory) != 0;
  if (const Status status = check_identity(); !status.is_ok()) {
    send_verdict(status.code() == StatusCode::kBusy ? kRefusedBusy : kRefused, status.message());
    return Status(status.code(), "is refused: " + status.message());
  }
  send_verdict(kAccepted, "");
  if (is_initiator()) {
    await(State::kDone);
  } else {
    send_proof();
    await(State::kVerdict);
  }
  return Status::ok();
}

Status Handshake::take_verdict() {
  ByteReader reader(in_);
  const uint32_t magic = *reader.read<uint32_t>();
  const uint32_t code = *reader.read<uint32_t>();
  if (magic != kVerdictMagic) return Status::group("sent no verdict where one was due");
  if (code != kAccepted) {
    const std::string text = "refused: " + read_text(*reader.read_bytes(kVerdictTextBytes));
    return code == kRefusedBusy ? Status::busy(text) : Status::group(text);
  }
  await(is_initiator() ? State::kProof : State::kDone);
  return Status::ok();
}

Status Handshake::check_identity() {
  const NodeIdentity& own = config_.self;
  if (peer_.epoch != own.epoch) {
    return Status::group("its group epoch is " + std::to_string(peer_.epoch) + ", " +
                         own.node_name + " is in epoch " + std::to_string(own.epoch) +
                         ": the group was formed anew");
  }
  if (peer_.size != own.size) {
    return Status::group("it was told of " + std::to_string(peer_.size) + " ranks, " +
                         own.node_name + " of " + std::to_string(own.size));
  }
  if (peer_.rank >= own.size || peer_.rank == own.rank) {
    return Status::group("rank " + std::to_string(peer_.rank) + " is impossible here");
  }
  if (config_.expected_rank >= 0 && peer_.rank != static_cast<uint32_t>(config_.expected_rank)) {
    return Status::group("it is rank " + std::to_string(peer_.rank) + ", rank " +
                         std::to_string(config_.expected_rank) + " was expected");
  }
  if (peer_.purpose != LinkPurpose::kLiveness && peer_.purpose != LinkPurpose::kData) {
    return Status::group("the purpose of its connection is unknown");
  }
  if (is_initiator() && peer_.purpose != own.purpose) {
    return Status::group("it answered for another purpose");
  }
  if (peer_.slots.payload_bytes != own.slots.payload_bytes ||
      peer_.slots.count != own.slots.count) {
    return Status::group("it has " + std::to_string(peer_.slots.count) + " slots of " +
                         std::to_string(peer_.slots.payload_bytes) + " bytes, " + own.node_name +
                         " has " + std::to_string(own.slots.count) + " of " +
                         std::to_string(own.slots.payload_bytes));
  }
  if (peer_.listen_port > 65535) return Status::group("its port is impossible");
  return config_.accept ? config_.accept(peer_) : Status::ok();
}

void Handshake::send_preamble() {
  out_.insert(out_.end(), own_preamble_.begin(), own_preamble_.end());
}

void Handshake::send_proof() {
  NodeIdentity self = config_.self;
  // A responder answers for whatever its peer asked for.
  if (!is_initiator()) self.purpose = peer_.purpose;
  ByteWriter writer;
  writer.write(self.epoch);
  writer.write(self.rank);
  writer.write(self.size);
  writer.write(static_cast<uint32_t>(self.purpose));
  writer.write(self.listen_port);
  writer.write(self.process_id);
  writer.write(self.slots.payload_bytes);
  writer.write(self.slots.count);
  write_text(writer, self.boot_id, kBootIdBytes);
  writer.write(self.maps_memory ? kFlagMapsMemory : 0);
  std::vector<std::byte> body = writer.take();
  CHECK(body.size() <= kBodyBytes);
  body.resize(kBodyBytes);
  const MessageMac mac = proof_mac(config_.role, body);
  out_.insert(out_.end(), mac.begin(), mac.end());
  out_.insert(out_.end(), body.begin(), body.end());
}

void Handshake::send_verdict(uint32_t code, std::string_view text) {
  ByteWriter writer;
  writer.write(kVerdictMagic);
  writer.write(code);
  write_text(writer, text, kVerdictTextBytes);
  out_.insert(out_.end(), writer.bytes().begin(), writer.bytes().end());
}

MessageMac Handshake::proof_mac(HandshakeRole role, std::span<const std::byte> body) const {
  const std::span<const std::byte> own(own_preamble_);
  const std::span<const std::byte> peer(peer_preamble_);
  return message_mac(config_.secret, {bytes_of(role_label(role)), is_initiator() ? own : peer,
                                      is_initiator() ? peer : own, body});
}

}  // namespace shoal::fabric

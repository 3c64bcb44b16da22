#include "fabric/ucx/ucx_connect.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/bytes.h"
#include "base/log.h"
#include "fabric/link/printable.h"
#include "fabric/link/secret.h"
#include "fabric/link/stream.h"

namespace shoal::fabric {
namespace {

constexpr uint32_t kMagic = 0x5258434f;  // "OCXR"
constexpr uint32_t kAddress = 0;
constexpr uint32_t kReason = 1;
constexpr size_t kMachineBytes = 40;
// For the first message each way.
constexpr Nanoseconds kProbeMax = std::chrono::seconds(5);

std::string version_text(uint32_t version) {
  return fmt::format("{}.{}", version >> UCP_VERSION_MAJOR_SHIFT,
                     (version >> UCP_VERSION_MINOR_SHIFT) & 0xff);
}

uint32_t version_of(const UcxTable& table) {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  table.get_version(&major, &minor, &release);
  return UCP_VERSION(major, minor);
}

}  // namespace

std::vector<std::byte> encode_ucx_offer(const UcxOffer& offer) {
  ByteWriter body;
  if (offer.reason.empty()) {
    std::array<std::byte, kMachineBytes> machine{};
    const std::string_view name = std::string_view(offer.machine).substr(0, kMachineBytes - 1);
    std::ranges::copy(std::as_bytes(std::span(name)), machine.begin());
    body.write_bytes(machine);
    body.write_bytes(offer.address);
  } else {
    const auto reason = std::string_view(offer.reason).substr(0, UcxOffer::kReasonBytesMax);
    body.write_bytes(std::as_bytes(std::span(reason)));
  }
  ByteWriter writer;
  writer.write(kMagic);
  writer.write(offer.version);
  writer.write(offer.reason.empty() ? kAddress : kReason);
  writer.write(static_cast<uint32_t>(body.bytes().size()));
  writer.write_bytes(body.bytes());
  return writer.take();
}

Result<size_t> ucx_offer_body_bytes(std::span<const std::byte, UcxOffer::kHeaderBytes> header) {
  ByteReader reader(header);
  const uint32_t magic = *reader.read<uint32_t>();
  CHECK(reader.skip(sizeof(uint32_t)).is_ok());
  const uint32_t kind = *reader.read<uint32_t>();
  const uint32_t bytes = *reader.read<uint32_t>();
  const bool is_address =
      kind == kAddress && bytes > kMachineBytes && bytes <= UcxOffer::kBodyBytesMax;
  const bool is_reason = kind == kReason && bytes > 0 && bytes <= UcxOffer::kReasonBytesMax;
  if (magic != kMagic || !(is_address || is_reason)) {
    return Status::group("sent rubbish for the address of its UCX worker");
  }
  return bytes;
}

Result<UcxOffer> decode_ucx_offer(std::span<const std::byte> bytes) {
  if (bytes.size() < UcxOffer::kHeaderBytes) return Status::group("sent too short an offer");
  const auto header = bytes.first<UcxOffer::kHeaderBytes>();
  const auto body = bytes.subspan(UcxOffer::kHeaderBytes);
  ASSIGN_OR_RETURN(const size_t body_bytes, ucx_offer_body_bytes(header));
  if (body_bytes != body.size()) return Status::group("sent an offer of a wrong length");
  ByteReader reader(header);
  CHECK(reader.skip(sizeof(uint32_t)).is_ok());
  UcxOffer offer;
  offer.version = *reader.read<uint32_t>();
  const uint32_t kind = *reader.read<uint32_t>();
  if (kind == kReason) {
    offer.reason = printable(text_of(body));
    return offer;
  }
  const std::string_view machine = text_of(body.first(kMachineBytes));
  offer.machine = printable(machine.substr(0, machine.find('\0')));
  offer.address.assign(body.begin() + kMachineBytes, body.end());
  return offer;
}

namespace {

Result<UcxOffer> receive_offer(int data, const Deadline& deadline) {
  std::array<std::byte, UcxOffer::kHeaderBytes> header{};
  RETURN_IF_ERROR(read_all(data, header, deadline));
  ASSIGN_OR_RETURN(const size_t body_bytes, ucx_offer_body_bytes(header));
  std::vector<std::byte> bytes(header.begin(), header.end());
  bytes.resize(header.size() + body_bytes);
  RETURN_IF_ERROR(read_all(data, std::span(bytes).subspan(header.size()), deadline));
  return decode_ucx_offer(bytes);
}

// The higher rank speaks first, so that neither waits for the other to read.
Result<UcxOffer> exchange_offers(int data, const UcxOffer& offer, const EndpointInfo& info,
                                 const Deadline& deadline) {
  const bool is_first = info.self_rank > info.peer_rank;
  const std::vector<std::byte> own = encode_ucx_offer(offer);
  if (is_first) RETURN_IF_ERROR(write_all(data, own, deadline));
  Result<UcxOffer> peer = receive_offer(data, deadline);
  if (peer.is_ok() && !is_first) RETURN_IF_ERROR(write_all(data, own, deadline));
  return peer;
}

Status check_offer(const UcxOffer& peer, uint32_t own_version) {
  if (!peer.reason.empty()) return Status::group("cannot use UCX: " + peer.reason);
  if (peer.version == own_version) return Status::ok();
  return Status::group(fmt::format("has UCX {}, this node has {}: install the same on both",
                                   version_text(peer.version), version_text(own_version)));
}

}  // namespace

void refuse_ucx(int data, const Status& why, const Deadline& deadline) {
  UcxOffer offer;
  offer.reason = why.message();
  (void)write_all(data, encode_ucx_offer(offer), deadline);
}

namespace {

// An endpoint that is connected, but has not carried a message yet.
struct Attempt {
  std::unique_ptr<UcxEndpoint> endpoint;
  bool is_silent = false;  // it does not report errors
};

// Between whom.
struct Way {
  const UcxContext& context;
  int data;  // the connection of the handshake
  const EndpointInfo& info;
  GroupHealth& health;
};

// Exchanges addresses; the errors of a peer on this machine are silent where they may be.
Result<Attempt> attempt(const Way& way, UcxLink::Errors errors, const Deadline& deadline) {
  UcxOffer own;
  own.version = version_of(way.context.table());
  own.machine = boot_id();
  Result<std::unique_ptr<UcxLink>> link = UcxLink::open(way.context);
  Status opened = link.status();
  if (opened.is_ok()) {
    Result<std::vector<std::byte>> address = (*link)->address();
    opened = address.status();
    if (opened.is_ok()) own.address = std::move(*address);
  }
  if (!opened.is_ok()) own.reason = opened.message();
  const Result<UcxOffer> peer = exchange_offers(way.data, own, way.info, deadline);
  RETURN_IF_ERROR(opened);
  if (!peer.is_ok()) return peer.status();
  RETURN_IF_ERROR(check_offer(*peer, own.version));
  const bool is_same_machine = own.machine == peer->machine && own.machine != "unknown";
  Attempt attempt;
  attempt.is_silent = errors == UcxLink::Errors::kAreSilent && is_same_machine;
  ASSIGN_OR_RETURN(attempt.endpoint, UcxEndpoint::create(way.info, std::move(*link), way.health));
  RETURN_IF_ERROR(attempt.endpoint->connect(peer->address, attempt.is_silent
                                                               ? UcxLink::Errors::kAreSilent
                                                               : UcxLink::Errors::kAreReported));
  return attempt;
}

// Whether both sides see nothing but shared memory between them.
Result<bool> agree_on_shared_memory(int data, bool is_here, const Deadline& deadline) {
  const std::byte own{is_here ? uint8_t{1} : uint8_t{0}};
  RETURN_IF_ERROR(write_all(data, {&own, 1}, deadline));
  std::byte peer{};
  RETURN_IF_ERROR(read_all(data, {&peer, 1}, deadline));
  return own == std::byte{1} && peer == std::byte{1};
}

Result<std::unique_ptr<UcxEndpoint>> connect(const Way& way, const Deadline& deadline) {
  using enum UcxLink::Errors;
  ASSIGN_OR_RETURN(Attempt made, attempt(way, kAreSilent, deadline));
  if (made.is_silent) {
    const bool is_here = made.endpoint->link().is_shared_memory();
    ASSIGN_OR_RETURN(const bool is_agreed, agree_on_shared_memory(way.data, is_here, deadline));
    if (!is_agreed) {
      made.endpoint.reset();
      ASSIGN_OR_RETURN(made, attempt(way, kAreReported, deadline));
    }
  }
  RETURN_IF_ERROR(made.endpoint->probe(way.data, deadline.at_most(kProbeMax)));
  return std::move(made.endpoint);
}

// UCX goes over TCP without a word when it cannot use an RDMA device (C73).
void report_transports(std::string_view peer, const std::vector<std::string>& transports) {
  const std::string text = fmt::format("{}: {}", peer, fmt::join(transports, ", "));
  const bool is_tcp =
      std::ranges::any_of(transports, [](std::string_view one) { return one.starts_with("tcp/"); });
  std::error_code error;
  const std::filesystem::directory_iterator devices("/sys/class/infiniband", error);
  if (!is_tcp || error || devices == std::filesystem::directory_iterator()) {
    LOG(info, "{}", text);
    return;
  }
  LOG(warn,
      "{}, though this machine has RDMA devices: UCX_TLS and UCX_NET_DEVICES may exclude them, or "
      "the limit on locked memory (ulimit -l) is too low; UCX_LOG_LEVEL=info says more",
      text);
}

}  // namespace

Result<std::unique_ptr<UcxEndpoint>> connect_ucx(const UcxContext& context, int data,
                                                 const EndpointInfo& info, GroupHealth& health,
                                                 const Deadline& deadline) {
  const std::string peer = health.rank_text(info.peer_rank) + " over " + info.link;
  auto endpoint =
      connect({.context = context, .data = data, .info = info, .health = health}, deadline);
  if (!endpoint.is_ok()) return endpoint.status().with_context(peer);
  report_transports(peer, (*endpoint)->link().transports());
  return endpoint;
}

}  // namespace shoal::fabric

#include "fabric/verbs/verbs_connect.h"

#include <fmt/format.h>

#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/os/thread.h"
#include "fabric/link/printable.h"
#include "fabric/link/stream.h"

namespace shoal::fabric {
namespace {

// Before an offer: zero, or the length of the reason why there is none.
constexpr uint32_t kReasonBytesMax = 512;
// For opening a device, and for connecting its queue pairs.
constexpr Nanoseconds kDeviceMax = std::chrono::seconds(10);
// For the first message through every lane.
constexpr Nanoseconds kProbeMax = std::chrono::seconds(5);

Status send_offer(int data, const RailOffer& offer, const Deadline& deadline) {
  ByteWriter writer;
  writer.write(uint32_t{0});
  writer.write_bytes(encode_rail_offer(offer));
  return write_all(data, writer.bytes(), deadline);
}

Status send_reason(int data, const Status& status, const Deadline& deadline) {
  const std::string_view reason = std::string_view(status.message()).substr(0, kReasonBytesMax);
  ByteWriter writer;
  writer.write(static_cast<uint32_t>(reason.size()));
  writer.write_bytes(std::as_bytes(std::span(reason)));
  return write_all(data, writer.bytes(), deadline);
}

Result<RailOffer> receive_offer(int data, const Deadline& deadline) {
  std::array<std::byte, sizeof(uint32_t)> length{};
  RETURN_IF_ERROR(read_all(data, length, deadline));
  const uint32_t reason_bytes = *ByteReader(length).read<uint32_t>();
  if (reason_bytes > kReasonBytesMax) return Status::group("sent rubbish for its queue pairs");
  if (reason_bytes > 0) {
    std::vector<std::byte> reason(reason_bytes);
    RETURN_IF_ERROR(read_all(data, reason, deadline));
    const std::string text(reinterpret_cast<const char*>(reason.data()), reason.size());
    return Status::group("cannot use RDMA: " + printable(text));
  }
  std::array<std::byte, RailOffer::kBytes> bytes{};
  RETURN_IF_ERROR(read_all(data, bytes, deadline));
  return decode_rail_offer(bytes);
}

Status exchange_ready(int data, const Deadline& deadline) {
  RETURN_IF_ERROR(send_ready(data, deadline));
  return await_ready(data, deadline);
}

using LinkResult = Result<VerbsRailPtr>;

// What the device says, or that it says nothing.
LinkResult bounded(const std::function<LinkResult()>& call, const Deadline& deadline) {
  auto link = run_bounded<LinkResult>(call, deadline.at_most(kDeviceMax));
  if (link.is_ok()) return std::move(*link);
  if (link.status().code() != StatusCode::kBusy) return link.status();
  return Status::node("the RDMA device does not answer in time: its driver hangs");
}

LinkResult open_link(const VerbsProvider& provider, int data, const SlotClass& slots,
                     const Deadline& deadline) {
  ASSIGN_OR_RETURN(const SocketAddress local, local_address(data));
  return bounded(
      [provider, local, slots]() -> LinkResult {
        ASSIGN_OR_RETURN(const VerbsPort port, find_port(*provider.table, local));
        return VerbsRail::open(provider, port, slots);
      },
      deadline);
}

LinkResult connect_link(VerbsRailPtr link, const RailOffer& offer, const Deadline& deadline) {
  const auto held = std::make_shared<VerbsRailPtr>(std::move(link));
  return bounded(
      [held, offer]() -> LinkResult {
        RETURN_IF_ERROR((*held)->connect(offer));
        return std::move(*held);
      },
      deadline);
}

}  // namespace

Result<std::unique_ptr<VerbsEndpoint>> connect_verbs(const VerbsProvider& provider, int data,
                                                     const EndpointInfo& info, GroupHealth& health,
                                                     const Deadline& deadline) {
  const std::string peer = health.rank_text(info.peer_rank) + " over " + info.link + ": ";
  auto link = open_link(provider, data, info.slots, deadline);
  if (!link.is_ok()) {
    (void)send_reason(data, link.status(), deadline);
    return link.status().with_context(peer + "no RDMA here");
  }
  const std::string where =
      fmt::format("{}{}, GID {}", peer, (*link)->port().text(), (*link)->port().gid_index);
  RETURN_IF_ERROR(send_offer(data, (*link)->offer(), deadline).with_context(where));
  const auto offer = receive_offer(data, deadline);
  if (!offer.is_ok()) return offer.status().with_context(where);
  link = connect_link(std::move(*link), *offer, deadline);
  if (!link.is_ok()) return link.status().with_context(where);
  RETURN_IF_ERROR(exchange_ready(data, deadline).with_context(where));
  ASSIGN_OR_RETURN(auto endpoint, VerbsEndpoint::create(info, std::move(*link), health));
  RETURN_IF_ERROR(endpoint->probe(data, deadline.at_most(kProbeMax)).with_context(where));
  return endpoint;
}

}  // namespace shoal::fabric

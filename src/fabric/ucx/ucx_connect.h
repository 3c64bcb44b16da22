// connect_ucx(): from a TCP connection past its handshake to a UCX link that carries messages.
//
// Over the connection each side says how its UCX worker is reached, or why it cannot be; then a
// message goes through UCX, both ways, and one byte each over the connection says that it came.
// docs/fabric.md specifies the bytes. Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "fabric/endpoint.h"
#include "fabric/ucx/ucx_context.h"
#include "fabric/ucx/ucx_endpoint.h"

namespace shoal::fabric {

// How one side is reached; or, without an address, why it is not.
struct UcxOffer {
  static constexpr size_t kHeaderBytes = 16;
  static constexpr size_t kBodyBytesMax = size_t{64} * 1024;
  static constexpr size_t kReasonBytesMax = 512;

  uint32_t version = UCP_API_VERSION;  // of the library, as UCP_VERSION makes it
  std::string machine;                 // its boot id, at most 39 bytes
  std::vector<std::byte> address;
  std::string reason;
};
std::vector<std::byte> encode_ucx_offer(const UcxOffer& offer);
// How many bytes follow a header; kGroup, as the end of a sentence about the peer, for rubbish.
Result<size_t> ucx_offer_body_bytes(std::span<const std::byte, UcxOffer::kHeaderBytes> header);
// Of header and body; kGroup, as above.
Result<UcxOffer> decode_ucx_offer(std::span<const std::byte> bytes);

// `data` is a connected, non-blocking socket. kNode: UCX refuses something here; kGroup: the peer
// cannot, the versions differ, no transport is common, or nothing comes through.
Result<std::unique_ptr<UcxEndpoint>> connect_ucx(const UcxContext& context, int data,
                                                 const EndpointInfo& info, GroupHealth& health,
                                                 const Deadline& deadline);
// In its place, where there is no context: tells the peer why.
void refuse_ucx(int data, const Status& why, const Deadline& deadline);

}  // namespace shoal::fabric

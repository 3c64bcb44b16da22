#include "fabric/endpoint.h"

#include <cstring>
#include <utility>

namespace shoal::fabric {

Status check_slot_class(const SlotClass& slots) {
  if (slots.payload_bytes < kSlotPayloadBytesMin || slots.payload_bytes > kSlotPayloadBytesMax ||
      slots.payload_bytes % 64 != 0) {
    return Status::request("a slot of " + std::to_string(slots.payload_bytes) +
                           " bytes: it must be a multiple of 64 from " +
                           std::to_string(kSlotPayloadBytesMin) + " to " +
                           std::to_string(kSlotPayloadBytesMax));
  }
  if (slots.count < kSlotCountMin || slots.count > kSlotCountMax) {
    return Status::request(std::to_string(slots.count) + " slots: it must be " +
                           std::to_string(kSlotCountMin) + " to " + std::to_string(kSlotCountMax));
  }
  return Status::ok();
}

Endpoint::Endpoint(EndpointInfo info, GroupHealth& health)
    : info_(std::move(info)),
      peer_text_(health.rank_text(info_.peer_rank) + " over " + info_.link),
      health_(health) {
  CHECK(check_slot_class(info_.slots).is_ok());
}

// For transports whose slots are the only memory that they can send from.
Result<bool> Endpoint::try_send(std::span<const std::byte> bytes, const SlotNote& note) {
  ASSIGN_OR_RETURN(const std::optional<SendSlot> slot, try_acquire_send());
  if (!slot.has_value()) return false;
  CHECK(bytes.size() == note.bytes && bytes.size() <= slot->payload.size());
  if (!bytes.empty()) std::memcpy(slot->payload.data(), bytes.data(), bytes.size());
  RETURN_IF_ERROR(post_send(*slot, note));
  return true;
}

Status Endpoint::fail(std::string_view reason) {
  health_.fail_with(info_.peer_rank, peer_text_ + " " + std::string(reason));
  return health_.failure();
}

Status Endpoint::failure_or_left() {
  if (health_.failed()) return health_.failure();
  if (!health_.has_left(info_.peer_rank)) return Status::ok();
  health_.fail_left(info_.peer_rank);
  return health_.failure();
}

}  // namespace shoal::fabric

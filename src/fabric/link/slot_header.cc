#include "fabric/link/slot_header.h"

namespace shoal::fabric {

std::optional<std::string> find_slot_fault(const SlotHeader& header,
                                           const SlotExpectation& expected) {
  if (header.magic != kSlotMagic) return "sent a slot with a wrong magic number";
  if (header.epoch != expected.epoch) {
    return "sent a slot of another group epoch (" + std::to_string(header.epoch) +
           ", this group is " + std::to_string(expected.epoch) + ")";
  }
  if (header.sequence != expected.sequence) {
    return "sent slot number " + std::to_string(header.sequence) + " where " +
           std::to_string(expected.sequence) + " was due";
  }
  if (header.bytes > expected.payload_bytes) {
    return "sent a slot of " + std::to_string(header.bytes) + " bytes, the limit is " +
           std::to_string(expected.payload_bytes);
  }
  if ((header.flags & ~(kFlagFirst | kFlagCredit)) != 0) return "sent a slot with unknown flags";
  if (header.message_left < header.bytes) {
    return "sent a slot that is longer than what its message has left";
  }
  return std::nullopt;
}

}  // namespace shoal::fabric

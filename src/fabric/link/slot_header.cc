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

std::optional<ShortHeader> ShortHeader::of_slot(const SlotHeader& header, const SlotTrail& before) {
  const bool goes_on = before.message_left > 0;
  const bool is_first = (header.flags & kFlagFirst) != 0;
  const auto tag_step = static_cast<int32_t>(header.tag - before.tag);
  if (is_first == goes_on ||
      header.message_left != (goes_on ? before.message_left : header.bytes) ||
      tag_step < -kTagStepMax - 1 || tag_step > kTagStepMax) {
    return std::nullopt;
  }
  const auto numbers =
      static_cast<uint32_t>((header.sequence & 0xff) | (header.released & 0xff) << 8);
  const auto step_bits = static_cast<uint32_t>(tag_step + kTagStepMax + 1);
  return ShortHeader(numbers | check_of(header.bytes) << 16 | step_bits << 24);
}

ShortHeader ShortHeader::of_credits(uint64_t released) {
  return ShortHeader(1U << 31 | static_cast<uint32_t>(released & 0xff) << 8);
}

SlotNote ShortHeader::note(uint32_t bytes, const SlotTrail& before) const {
  const bool goes_on = before.message_left > 0;
  const uint32_t step_bits = (word_ >> 24) & 0x7f;
  return {.bytes = bytes,
          .is_first = !goes_on,
          .message_left = goes_on ? before.message_left : bytes,
          .tag = before.tag + step_bits - (kTagStepMax + 1)};
}

}  // namespace shoal::fabric

// SlotHeader: what goes before every slot, and the checks that every link makes.
//
// The layout is specified in docs/fabric.md. Thread rule: values.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "fabric/endpoint.h"

namespace shoal::fabric {

inline constexpr uint32_t kSlotMagic = 0x4c4f4853;  // "SHOL"
inline constexpr size_t kSlotHeaderBytes = 48;

// Bits of SlotHeader::flags; others are refused.
inline constexpr uint32_t kFlagFirst = 1;   // first slot of a message
inline constexpr uint32_t kFlagCredit = 2;  // no slot, only credits

// Its members lie as on the wire.
struct SlotHeader {
  uint32_t magic = kSlotMagic;
  uint32_t bytes = 0;  // of payload
  uint64_t epoch = 0;
  uint64_t sequence = 0;  // 1, 2, ... per direction
  uint64_t message_left = 0;
  uint64_t released = 0;  // receive slots released since the start, on links that send credits
  uint32_t flags = 0;
  uint32_t tag = 0;  // see SlotNote
};

static_assert(sizeof(SlotHeader) == kSlotHeaderBytes && std::endian::native == std::endian::little);

inline void encode_slot_header(const SlotHeader& header,
                               std::span<std::byte, kSlotHeaderBytes> out) {
  std::memcpy(out.data(), &header, kSlotHeaderBytes);
}
inline SlotHeader decode_slot_header(std::span<const std::byte, kSlotHeaderBytes> in) {
  SlotHeader header;
  std::memcpy(&header, in.data(), kSlotHeaderBytes);
  return header;
}

struct SlotExpectation {
  uint64_t epoch = 0;
  uint64_t sequence = 0;
  uint32_t payload_bytes = 0;  // of a whole slot
};

// What is wrong with the header, as the end of a sentence about the peer; nothing when it is fine.
std::optional<std::string> find_slot_fault(const SlotHeader& header,
                                           const SlotExpectation& expected);

// Where in the group's traffic a header stands.
struct SlotPlace {
  uint64_t epoch = 0;
  uint64_t sequence = 0;
  uint64_t released = 0;
};
inline SlotHeader slot_header(const SlotPlace& place, const SlotNote& note) {
  return {.bytes = note.bytes,
          .epoch = place.epoch,
          .sequence = place.sequence,
          .message_left = note.message_left,
          .released = place.released,
          .flags = note.is_first ? kFlagFirst : 0,
          .tag = note.tag};
}
// A header without a slot; links that say more by it use the tag.
inline SlotHeader credit_header(const SlotPlace& place, uint32_t tag = 0) {
  return {.epoch = place.epoch,
          .sequence = place.sequence,
          .released = place.released,
          .flags = kFlagCredit,
          .tag = tag};
}

inline SlotNote note_of(const SlotHeader& header) {
  return {.bytes = header.bytes,
          .is_first = (header.flags & kFlagFirst) != 0,
          .message_left = header.message_left,
          .tag = header.tag};
}

}  // namespace shoal::fabric

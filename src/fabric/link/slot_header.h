// SlotHeader: what goes before every slot, and the checks that every link makes; ShortHeader: the
// same in 32 bits, for a slot that the one before it nearly explains.
//
// The layouts are specified in docs/fabric.md. Thread rule: values.
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

// What a slot tells of the next one in its direction.
struct SlotTrail {
  uint64_t message_left = 0;  // behind the slot; more than 0: the next one goes on with it
  uint32_t tag = 0;

  // note.message_left >= note.bytes.
  static SlotTrail behind(const SlotNote& note) {
    return {.message_left = note.message_left - note.bytes, .tag = note.tag};
  }
};

// A header in the 32 bits that a link carries beside a message, such as RDMA's immediate data. It
// is enough for credits, for messages of one slot whose tag is near the last one, and for what
// follows the first slot of a longer message. Of numbers that only grow it has the low bits: the
// receiver knows one that is at most 255 less. The epoch is not in it: the link must belong to one.
class ShortHeader {
 public:
  // Slots per direction: half of what eight bits tell apart, so that a slot without a credit shows.
  static constexpr uint32_t kSlotsMax = 128;
  static constexpr uint64_t kStepMax = 255;

  // None: what the header says does not follow from the trail.
  static std::optional<ShortHeader> of_slot(const SlotHeader& header, const SlotTrail& before);
  static ShortHeader of_credits(uint64_t released);
  static constexpr ShortHeader from_word(uint32_t word) { return ShortHeader(word); }
  constexpr uint32_t word() const { return word_; }

  bool is_credit() const { return (word_ >> 31) != 0; }
  // Whether a message of so many bytes may have this header: credits have none and say nothing
  // else; of slots, wrong lengths pass if they differ by a multiple of 251.
  bool fits(uint32_t bytes) const {
    if (is_credit()) return bytes == 0 && (word_ & ~kCreditBits) == 0;
    return check_of(bytes) == ((word_ >> 16) & 0xff);
  }
  // The whole numbers, of which one at most kStepMax less is known.
  uint64_t sequence_from(uint64_t known) const { return known + step(known, word_); }
  uint64_t released_from(uint64_t known) const { return known + step(known, word_ >> 8); }
  // The note of a slot of so many bytes; its message_left may be less than these, from a peer that
  // breaks the rules.
  SlotNote note(uint32_t bytes, const SlotTrail& before) const;

 private:
  static constexpr uint32_t kCreditBits = 0x8000ff00;
  static constexpr int32_t kTagStepMax = 63;  // and -64

  explicit constexpr ShortHeader(uint32_t word) : word_(word) {}
  static constexpr uint32_t check_of(uint32_t bytes) { return bytes % 251; }
  static constexpr uint8_t step(uint64_t known, uint32_t low) {
    return static_cast<uint8_t>(low - known);
  }

  // From the lowest: 8 bits sequence, 8 released, 8 check of the length, 7 step of the tag plus 64,
  // 1 credit.
  uint32_t word_ = 0;
};

}  // namespace shoal::fabric

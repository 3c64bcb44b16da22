#include "fabric/link/slot_header.h"

#include "base/bytes.h"
#include "base/check.h"

namespace shoal::fabric {

void encode_slot_header(const SlotHeader& header, std::span<std::byte, kSlotHeaderBytes> out) {
  FieldWriter fields(out);
  fields.write(header.magic);
  fields.write(header.bytes);
  fields.write(header.epoch);
  fields.write(header.sequence);
  fields.write(header.message_left);
  fields.write(header.released);
  fields.write(header.flags);
  fields.write(header.tag);
  CHECK(fields.left() == 0);
}

SlotHeader decode_slot_header(std::span<const std::byte, kSlotHeaderBytes> in) {
  ByteReader reader(in);
  SlotHeader header;
  header.magic = *reader.read<uint32_t>();
  header.bytes = *reader.read<uint32_t>();
  header.epoch = *reader.read<uint64_t>();
  header.sequence = *reader.read<uint64_t>();
  header.message_left = *reader.read<uint64_t>();
  header.released = *reader.read<uint64_t>();
  header.flags = *reader.read<uint32_t>();
  header.tag = *reader.read<uint32_t>();
  CHECK(reader.left() == 0);
  return header;
}

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

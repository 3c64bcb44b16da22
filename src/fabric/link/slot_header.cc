#include "fabric/link/slot_header.h"

#include <cstring>

namespace shoal::fabric {
namespace {

template <typename T>
void put(std::span<std::byte, kSlotHeaderBytes> out, size_t at, T value) {
  std::memcpy(out.data() + at, &value, sizeof(T));
}

template <typename T>
T get(std::span<const std::byte, kSlotHeaderBytes> in, size_t at) {
  T value;
  std::memcpy(&value, in.data() + at, sizeof(T));
  return value;
}

}  // namespace

void encode_slot_header(const SlotHeader& header, std::span<std::byte, kSlotHeaderBytes> out) {
  put(out, 0, header.magic);
  put(out, 4, header.bytes);
  put(out, 8, header.epoch);
  put(out, 16, header.sequence);
  put(out, 24, header.message_left);
  put(out, 32, header.released);
  put(out, 40, header.flags);
  put(out, 44, header.tag);
}

SlotHeader decode_slot_header(std::span<const std::byte, kSlotHeaderBytes> in) {
  return {.magic = get<uint32_t>(in, 0),
          .bytes = get<uint32_t>(in, 4),
          .epoch = get<uint64_t>(in, 8),
          .sequence = get<uint64_t>(in, 16),
          .message_left = get<uint64_t>(in, 24),
          .released = get<uint64_t>(in, 32),
          .flags = get<uint32_t>(in, 40),
          .tag = get<uint32_t>(in, 44)};
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

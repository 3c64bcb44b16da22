// ShmSegment: the shared memory of one pair of ranks, two rings of slots in a sealed memfd.
//
// Layout (docs/fabric.md): one page of controls, then the slots of the ring from the lower to the
// higher rank, then those of the other ring. Every field is an atomic, since the other process may
// write at any time; whoever reads a foreign field checks it.
// Thread rule: the segment is a mapping; users order their accesses by the sequence numbers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/status.h"
#include "base/unique_fd.h"
#include "fabric/endpoint.h"

namespace shoal::fabric {

// Two lines apart, so that the processor's pairwise prefetch joins nothing.
inline constexpr size_t kShmLineBytes = 128;

// Where one side sleeps. `wants` has the bits below while it does.
inline constexpr uint32_t kWantsSlots = 1;
inline constexpr uint32_t kWantsCredits = 2;
struct alignas(kShmLineBytes) ShmBell {
  std::atomic<uint32_t> wants;
  std::atomic<uint32_t> word;  // the futex
};

// Written by the ring's receiver.
struct alignas(kShmLineBytes) ShmRingControl {
  std::atomic<uint64_t> released;  // slots released since the start
};

struct ShmControls {
  ShmBell bells[2];            // [side]: 0 the lower rank, 1 the higher
  ShmRingControl released[2];  // [ring]: 0 from lower to higher
};

// Before each slot's payload; `sequence` is written last and publishes the slot.
struct alignas(64) ShmSlotHeader {
  std::atomic<uint64_t> sequence;
  std::atomic<uint64_t> epoch;
  std::atomic<uint64_t> message_left;
  std::atomic<uint32_t> magic;
  std::atomic<uint32_t> bytes;
  std::atomic<uint32_t> flags;
  std::atomic<uint32_t> tag;
};
static_assert(sizeof(ShmSlotHeader) == 64);
static_assert(std::atomic<uint64_t>::is_always_lock_free);

class ShmSegment {
 public:
  // A new memfd of the right size, zeroed, sealed against shrinking and growing.
  static Result<UniqueFd> create(const SlotClass& slots);
  // Maps a memfd that may come from a peer: size and seals are checked. The descriptor may be
  // closed afterwards.
  static Result<std::unique_ptr<ShmSegment>> map(int fd, const SlotClass& slots);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  static size_t size_bytes(const SlotClass& slots);

  ShmControls& controls() { return *reinterpret_cast<ShmControls*>(base_); }
  // index < slots.count
  ShmSlotHeader& header(int ring, uint32_t index) {
    return *reinterpret_cast<ShmSlotHeader*>(slot(ring, index));
  }
  std::span<std::byte> payload(int ring, uint32_t index) {
    return {slot(ring, index) + sizeof(ShmSlotHeader), slots_.payload_bytes};
  }

 private:
  ShmSegment(std::byte* base, const SlotClass& slots) : base_(base), slots_(slots) {}
  std::byte* slot(int ring, uint32_t index) {
    const size_t stride = sizeof(ShmSlotHeader) + slots_.payload_bytes;
    return base_ + kControlBytes + (static_cast<size_t>(ring) * slots_.count + index) * stride;
  }

  static constexpr size_t kControlBytes = 4096;
  static_assert(sizeof(ShmControls) <= kControlBytes);

  std::byte* base_;
  SlotClass slots_;
};

}  // namespace shoal::fabric

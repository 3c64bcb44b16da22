#include "fabric/shm/shm_endpoint.h"

#include <algorithm>

#include "fabric/shm/futex.h"

namespace shoal::fabric {
namespace {

// A peer that breaks the protocol cannot keep us asleep longer than this.
constexpr Nanoseconds kSleepMax = std::chrono::milliseconds(500);

}  // namespace

ShmEndpoint::ShmEndpoint(EndpointInfo info, std::unique_ptr<ShmSegment> segment,
                         GroupHealth& health)
    : Endpoint(std::move(info), health),
      side_(this->info().self_rank < this->info().peer_rank ? 0 : 1),
      send_ring_(side_),
      receive_ring_(1 - side_),
      segment_(std::move(segment)),
      own_bell_(segment_->controls().bells[side_]),
      peer_bell_(segment_->controls().bells[1 - side_]) {
  waker_ticket_ = health.add_waker([this] { wake_self(); });
}

ShmEndpoint::~ShmEndpoint() { health().remove_waker(waker_ticket_); }

// Sleepers announce themselves in `wants`, then look again, then sleep; we publish, then look at
// `wants`. Both with sequentially consistent atomics, so one of the two sees the other.
void ShmEndpoint::ring_bell(uint32_t want) {
  if ((peer_bell_.wants.load(std::memory_order_seq_cst) & want) == 0) return;
  peer_bell_.word.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(peer_bell_.word);
}

void ShmEndpoint::wake_self() {
  own_bell_.word.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(own_bell_.word);
}

// Takes over the peer's count of released slots; false when it makes no sense.
bool ShmEndpoint::read_credits() {
  const uint64_t released =
      segment_->controls().released[send_ring_].released.load(std::memory_order_acquire);
  if (released < released_by_peer_ || released > posted_) return false;
  released_by_peer_ = released;
  return true;
}

Result<std::optional<SendSlot>> ShmEndpoint::try_acquire_send() {
  if (health().failed()) return health().failure();
  if (acquired_ - released_by_peer_ >= info().slots.count) {
    if (!read_credits()) return fail("corrupted its count of released slots");
    if (acquired_ - released_by_peer_ >= info().slots.count) {
      wants_credits_ = true;
      RETURN_IF_ERROR(failure_or_left());
      return std::optional<SendSlot>();
    }
  }
  wants_credits_ = false;
  const uint32_t index = index_of(++acquired_);
  return std::optional<SendSlot>({segment_->payload(send_ring_, index), index});
}

Status ShmEndpoint::post_send(const SendSlot& slot, const SlotNote& note) {
  const uint64_t sequence = posted_ + 1;
  CHECK(posted_ < acquired_ && slot.index == index_of(sequence));
  CHECK(note.bytes <= info().slots.payload_bytes && note.bytes <= note.message_left);
  if (health().failed()) return health().failure();
  ShmSlotHeader& header = segment_->header(send_ring_, slot.index);
  header.magic.store(kSlotMagic, std::memory_order_relaxed);
  header.epoch.store(info().epoch, std::memory_order_relaxed);
  header.bytes.store(note.bytes, std::memory_order_relaxed);
  header.message_left.store(note.message_left, std::memory_order_relaxed);
  header.flags.store(note.is_first ? kFlagFirst : 0, std::memory_order_relaxed);
  header.tag.store(note.tag, std::memory_order_relaxed);
  header.sequence.store(sequence, std::memory_order_seq_cst);
  posted_ = sequence;
  ring_bell(kWantsSlots);
  return Status::ok();
}

Result<bool> ShmEndpoint::poll_sends() {
  if (health().failed()) return health().failure();
  return true;
}

Result<std::optional<ReceivedSlot>> ShmEndpoint::poll_receive() {
  if (health().failed()) return health().failure();
  // Everything posted is held by the caller: nothing can have arrived.
  if (received_ - released_ >= info().slots.count) return std::optional<ReceivedSlot>();
  const uint64_t due = received_ + 1;
  const uint32_t index = index_of(due);
  ShmSlotHeader& shared = segment_->header(receive_ring_, index);
  uint64_t sequence = shared.sequence.load(std::memory_order_acquire);
  if (sequence == stale_sequence(due)) {
    // A goodbye comes after everything that was sent: look once more before believing it.
    const bool may_be_last = health().failed() || health().has_left(info().peer_rank);
    if (!may_be_last) return std::optional<ReceivedSlot>();
    sequence = shared.sequence.load(std::memory_order_acquire);
    if (sequence == stale_sequence(due)) {
      RETURN_IF_ERROR(failure_or_left());
      return std::optional<ReceivedSlot>();
    }
  }
  const SlotHeader header{.magic = shared.magic.load(std::memory_order_relaxed),
                          .bytes = shared.bytes.load(std::memory_order_relaxed),
                          .epoch = shared.epoch.load(std::memory_order_relaxed),
                          .sequence = sequence,
                          .message_left = shared.message_left.load(std::memory_order_relaxed),
                          .released = 0,
                          .flags = shared.flags.load(std::memory_order_relaxed),
                          .tag = shared.tag.load(std::memory_order_relaxed)};
  const SlotExpectation expected{
      .epoch = info().epoch, .sequence = due, .payload_bytes = info().slots.payload_bytes};
  if (const auto fault = find_slot_fault(header, expected); fault.has_value()) return fail(*fault);
  if ((header.flags & kFlagCredit) != 0) return fail("sent a slot with unknown flags");
  received_ = due;
  return std::optional<ReceivedSlot>(
      {segment_->payload(receive_ring_, index).first(header.bytes), note_of(header), index});
}

Status ShmEndpoint::release_receive(const ReceivedSlot& slot) {
  CHECK(released_ < received_ && slot.index == index_of(released_ + 1));
  ++released_;
  segment_->controls().released[receive_ring_].released.store(released_, std::memory_order_seq_cst);
  ring_bell(kWantsCredits);
  return health().failed() ? health().failure() : Status::ok();
}

// Whether something came since the last wait() that returned for it.
bool ShmEndpoint::has_news() {
  if (health().failed() || health().has_left(info().peer_rank)) return true;
  const uint64_t due = received_ + 1;
  if (received_ - released_ < info().slots.count && due != reported_slot_) {
    const uint64_t sequence =
        segment_->header(receive_ring_, index_of(due)).sequence.load(std::memory_order_seq_cst);
    if (sequence != stale_sequence(due)) {
      reported_slot_ = due;
      return true;
    }
  }
  if (wants_credits_) {
    const uint64_t released =
        segment_->controls().released[send_ring_].released.load(std::memory_order_seq_cst);
    if (released != reported_credits_) {
      reported_credits_ = released;
      return true;
    }
  }
  return false;
}

void ShmEndpoint::wait(const Deadline& deadline) {
  const uint32_t seen = own_bell_.word.load(std::memory_order_seq_cst);
  own_bell_.wants.store(kWantsSlots | (wants_credits_ ? kWantsCredits : 0),
                        std::memory_order_seq_cst);
  if (!has_news()) {
    const Nanoseconds left = std::min(deadline.left(), kSleepMax);
    if (left.count() > 0) futex_wait(own_bell_.word, seen, left);
  }
  own_bell_.wants.store(0, std::memory_order_relaxed);
}

}  // namespace shoal::fabric

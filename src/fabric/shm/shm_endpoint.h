// ShmEndpoint: the Endpoint over shared memory between two processes of one machine.
//
// A slot's sequence number publishes it; releases are counted in a line of their own. The data path
// makes no system call unless the peer sleeps. The liveness socket of the pair is not here: it
// belongs to the LivenessMonitor.
// Thread rule: as endpoint.h.
#pragma once

#include <memory>

#include "fabric/endpoint.h"
#include "fabric/link/slot_header.h"
#include "fabric/shm/shm_segment.h"

namespace shoal::fabric {

class ShmEndpoint final : public Endpoint {
 public:
  // The lower rank of info is side 0.
  ShmEndpoint(EndpointInfo info, std::unique_ptr<ShmSegment> segment, GroupHealth& health);
  ~ShmEndpoint() override;

  Result<std::optional<SendSlot>> try_acquire_send() override;
  Status post_send(const SendSlot& slot, const SlotNote& note) override;
  Result<bool> poll_sends() override;
  Result<std::optional<ReceivedSlot>> poll_receive() override;
  Status release_receive(const ReceivedSlot& slot) override;
  void wait(const Deadline& deadline) override;

 private:
  bool read_credits();
  uint32_t index_of(uint64_t sequence) const {
    return static_cast<uint32_t>((sequence - 1) % info().slots.count);
  }
  // The sequence number that a slot holds before number `sequence` is published in it.
  uint64_t stale_sequence(uint64_t sequence) const {
    return sequence > info().slots.count ? sequence - info().slots.count : 0;
  }
  void ring_bell(uint32_t want);
  void wake_self();
  bool has_news();

  const int side_;
  const int send_ring_;
  const int receive_ring_;
  std::unique_ptr<ShmSegment> segment_;
  ShmBell& own_bell_;
  ShmBell& peer_bell_;
  uint64_t waker_ticket_ = 0;

  // Sending, as counts since the start: released <= posted <= acquired.
  uint64_t acquired_ = 0;
  uint64_t posted_ = 0;
  uint64_t released_by_peer_ = 0;
  bool wants_credits_ = false;
  // Receiving: released <= received.
  uint64_t received_ = 0;
  uint64_t released_ = 0;
  // What the last wait() has already reported.
  uint64_t reported_slot_ = 0;
  uint64_t reported_credits_ = 0;
};

}  // namespace shoal::fabric

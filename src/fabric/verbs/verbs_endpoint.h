// VerbsEndpoint: the Endpoint over RDMA queue pairs, by SEND and RECV only.
//
// Each slot is one SEND: a header of 64 bytes (docs/fabric.md) and the payload. Slots are numbered
// over all lanes of the link and given in that order; a lane's own numbers show at once when one
// was lost, doubled or overtaken. Where several cables lead to the peer, a large slot takes the one
// on which the fewest are under way, so that each carries what it can. Headers carry the count of
// released slots; a message with only a header carries nothing else. A credit means that the peer
// has read and released the slot before, so its buffer is free without asking for the send's
// completion; every few sends are signaled, to free their places in the device's queue. Large
// payloads in registered memory are sent from where they are: these sends are signaled, and
// poll_sends() waits for them.
// A completion with an error makes the peer a suspect: what happened, the liveness monitor finds.
// The data path makes no system call, allocates nothing and takes no lock. Thread rule: as
// endpoint.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "fabric/endpoint.h"
#include "fabric/link/slot_header.h"
#include "fabric/link/wake_event.h"
#include "fabric/verbs/verbs_link.h"

namespace shoal::fabric {

class VerbsEndpoint final : public Endpoint {
 public:
  // `link` is connected, the peer's receives are posted, and nothing is under way.
  static Result<std::unique_ptr<VerbsEndpoint>> create(EndpointInfo info,
                                                       std::unique_ptr<VerbsLink> link,
                                                       GroupHealth& health);
  // Gives posted slots a short time to arrive.
  ~VerbsEndpoint() override;

  Result<std::optional<SendSlot>> try_acquire_send() override;
  Status post_send(const SendSlot& slot, const SlotNote& note) override;
  Result<bool> try_send(std::span<const std::byte> bytes, const SlotNote& note) override;
  Result<bool> poll_sends() override;
  Result<std::optional<ReceivedSlot>> poll_receive() override;
  Status release_receive(const ReceivedSlot& slot) override;
  void wait(const Deadline& deadline) override;

 private:
  // A slot that has arrived: in which receive of which lane.
  struct Arrival {
    SlotHeader header{};
    int lane = 0;
    uint32_t receive = 0;
  };
  // Arrivals of one lane, in order.
  class ArrivalQueue {
   public:
    explicit ArrivalQueue(size_t capacity) : entries_(capacity) {}
    bool is_empty() const { return begin_ == end_; }
    bool is_full() const { return end_ - begin_ == entries_.size(); }
    const Arrival& front() const { return entries_[begin_ % entries_.size()]; }
    void push(const Arrival& arrival) { entries_[end_++ % entries_.size()] = arrival; }
    void pop() { ++begin_; }

   private:
    std::vector<Arrival> entries_;
    uint64_t begin_ = 0;
    uint64_t end_ = 0;
  };
  struct Lane {
    uint64_t posted = 0;     // sends
    uint64_t completed = 0;  // of these, as far as completions have told
    uint64_t signaled = 0;   // the last one that was
    uint64_t in_place = 0;   // the last one that reads the caller's memory
    uint64_t arrived = 0;    // messages
    ArrivalQueue arrivals;
  };

  VerbsEndpoint(EndpointInfo info, std::unique_ptr<VerbsLink> link, std::unique_ptr<WakeEvent> wake,
                GroupHealth& health);

  Result<bool> may_send();
  Status send_credit(int lane, bool is_signaled);
  Status send_credit_if_due();
  // For a message of so many bytes, header included.
  Result<int> choose_lane(uint32_t bytes);
  SlotHeader next_slot(const SlotNote& note);
  // A message whose payload, if any, lies behind `from` already, or in the caller's memory.
  struct Message {
    std::byte* from = nullptr;
    SlotHeader header{};
    std::span<const std::byte> in_place{};
    bool is_signaled = false;
  };
  Status send(int lane, const Message& message);
  Status post_receive(int lane, uint32_t receive);
  // For one message more than the slots that are acquired and may all go there.
  bool has_place(const Lane& lane) const {
    return lane.posted + (acquired_ - posted_) - lane.completed < link_->sends_max();
  }
  // Takes what has completed; gives whether there was anything.
  Result<bool> take_sends();
  Status take_send(const ibv_wc& completion);
  Result<bool> take_receives();
  Status take_message(int lane, uint32_t receive, uint32_t bytes);
  Status take_released(uint64_t released);
  Status broken(const ibv_wc& completion, std::string_view what);
  Status device_failed(const Status& status);
  bool reads_callers_memory() const;
  bool waits_for_sends() const;
  // The arrival that is due; null: not yet.
  const Arrival* due_arrival() const;
  // When arrivals are there, but none that is due. kGroup: it can never come.
  Status check_order();
  void drain_before_close();
  Status failure_or_end();

  std::unique_ptr<VerbsLink> link_;
  std::unique_ptr<WakeEvent> wake_;
  bool is_broken_ = false;   // a queue pair: nothing is sent any more
  bool is_stopped_ = false;  // all queue pairs
  std::vector<Lane> lanes_;

  // Sending: released_by_peer <= posted <= acquired; acquired - released_by_peer <= count.
  uint64_t acquired_ = 0;
  uint64_t posted_ = 0;
  uint64_t released_by_peer_ = 0;
  uint64_t controls_sent_ = 0;
  uint64_t released_told_ = 0;  // the released count of the last header

  // Receiving: released <= given.
  uint64_t given_ = 0;
  uint64_t released_ = 0;
  std::vector<Arrival> held_;  // by sequence % count
};

}  // namespace shoal::fabric

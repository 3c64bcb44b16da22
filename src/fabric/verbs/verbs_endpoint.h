// VerbsEndpoint: the Endpoint over RDMA queue pairs, by SEND and RECV only.
//
// Each slot is one SEND: a header of 64 bytes (docs/fabric.md) and the payload; or the payload
// alone, with a header of 32 bits in the SEND's immediate data, wherever that says enough. Slots
// are numbered over all lanes of the link and given in that order. Whole headers number the
// messages of their lane too, which shows at once when one was lost, doubled or overtaken; with
// short ones, which only reliable connections have, the slots' numbers show it. Where several
// cables lead to the peer, a large slot takes the one on which the fewest are under way, so that
// each carries what it can. Headers carry the count of released slots; a message with only a header
// carries nothing else. What is released is posted for receiving again when there is time, or when
// the peer would lack half of its credits. A credit means that the peer has read and released the
// slot before, so its buffer is free without asking for the send's completion; every few sends are
// signaled, to free their places in the device's queue. Large payloads in registered memory are
// sent from where they are: these sends are signaled, and poll_sends() waits for them.
// A completion with an error makes the peer a suspect: what happened, the liveness monitor finds.
// The data path makes no system call, allocates nothing and takes no lock. Thread rule: as
// endpoint.h.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <optional>
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
  // A slot that has arrived, or credits: in which receive of which lane.
  struct Arrival {
    int lane = 0;
    uint32_t receive = 0;
    uint64_t sequence = 0;
    uint64_t released = 0;
    bool is_credit = false;
    SlotNote whole_note{};  // but for its bytes, of a short header this waits for the slot before
    std::optional<ShortHeader> short_header{};

    SlotNote note(const SlotTrail& before) const {
      return short_header.has_value() ? short_header->note(whole_note.bytes, before) : whole_note;
    }
    uint32_t payload_at() const { return short_header.has_value() ? 0 : kVerbsHeaderBytes; }
  };
  // Arrivals of one lane, in order.
  class ArrivalQueue {
   public:
    explicit ArrivalQueue(size_t capacity) : entries_(std::bit_ceil(capacity)) {}
    bool is_empty() const { return begin_ == end_; }
    bool is_full() const { return end_ - begin_ == entries_.size(); }
    const Arrival& front() const { return entries_[begin_ & (entries_.size() - 1)]; }
    void push(const Arrival& arrival) { entries_[end_++ & (entries_.size() - 1)] = arrival; }
    void pop() { ++begin_; }

   private:
    std::vector<Arrival> entries_;  // a power of two: no division finds a place
    uint64_t begin_ = 0;
    uint64_t end_ = 0;
  };
  struct Lane {
    uint64_t posted = 0;     // sends
    uint64_t completed = 0;  // of these, as far as completions have told
    uint64_t signaled = 0;   // the last one that was
    uint64_t in_place = 0;   // the last one that reads the caller's memory
    uint64_t told = 0;       // the count of released slots in the last one
    uint64_t arrived = 0;    // messages
    uint64_t sequence = 0;   // of the last slot that arrived
    uint64_t released = 0;   // as the last message that arrived says
    ArrivalQueue arrivals;
  };

  VerbsEndpoint(EndpointInfo info, std::unique_ptr<VerbsLink> link, std::unique_ptr<WakeEvent> wake,
                GroupHealth& health);

  Result<bool> may_send();
  Status send_credit(int lane, bool is_signaled);
  Status send_credit_if_due();
  // Slots that the peer may lack before it is told by a message of credits.
  uint64_t untold_max() const { return (info().slots.count + 1) / 2; }
  // For a message of so many bytes, with the header that goes before it.
  Result<int> choose_lane(uint32_t bytes);
  // A message whose payload, if any, lies behind `from` already, or in the caller's memory.
  struct Message {
    std::byte* from = nullptr;
    SlotHeader header{};
    std::span<const std::byte> in_place{};
    bool is_signaled = false;
    std::optional<ShortHeader> short_header{};
  };
  // Sends `message` as the next slot; makes its header.
  Status send_slot(const SlotNote& note, Message message);
  bool may_be_short(int lane) const {
    return link_->layout().has_short_headers &&
           returned_ - lanes_[static_cast<size_t>(lane)].told <= ShortHeader::kStepMax;
  }
  Status send(int lane, const Message& message);
  Status post_receive(int lane, uint32_t receive);
  // Posts the receives of what has been released, and sends credits when many are due.
  Status return_released();
  // For one message more than the slots that are acquired and may all go there.
  bool has_place(const Lane& lane) const {
    return lane.posted + (acquired_ - posted_) - lane.completed < link_->sends_max();
  }
  // Takes what has completed; gives whether there was anything.
  Result<bool> take_sends();
  Status take_send(const ibv_wc& completion);
  Result<bool> take_receives();
  Status take_message(Arrival arrival, const ibv_wc& completion);
  Status read_header(Arrival& arrival, uint32_t bytes);
  Status read_short_header(Arrival& arrival, uint32_t bytes);
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
  SlotTrail sent_trail_;

  // Receiving: told <= returned <= released <= given; given - told <= count.
  uint64_t given_ = 0;
  uint64_t released_ = 0;
  uint64_t returned_ = 0;  // whose receives are posted again
  uint64_t told_ = 0;      // by the last header that was sent
  SlotTrail given_trail_;
  std::vector<Arrival> held_;  // by sequence % count
};

}  // namespace shoal::fabric

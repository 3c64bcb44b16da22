// UcxEndpoint: the Endpoint over UCX's active messages.
//
// Each slot is one active message: its header is a slot header (docs/fabric.md), its bytes come
// from a slot or from the caller's memory. UCX chooses how they go: copied into the message, or
// fetched by the receiver. So slots may arrive in any order, and are given in that of their
// numbers. Headers carry the count of released slots; one without a slot carries only that, or says
// that its sender leaves, or that all has arrived that a leaving peer sent. A failure that UCX
// reports makes the peer a suspect: what happened, the liveness monitor finds. Thread rule: as
// endpoint.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "fabric/endpoint.h"
#include "fabric/link/slot_header.h"
#include "fabric/link/wake_event.h"
#include "fabric/ucx/ucx_link.h"

namespace shoal::fabric {

class UcxEndpoint final : public Endpoint {
 public:
  static Result<std::unique_ptr<UcxEndpoint>> create(EndpointInfo info,
                                                     std::unique_ptr<UcxLink> link,
                                                     GroupHealth& health);
  // To the worker of the peer, once. kGroup: UCX sees no way to it.
  Status connect(std::span<const std::byte> peer_address, UcxLink::Errors errors);
  const UcxLink& link() const { return *link_; }
  // Sends a header without a slot and waits for the peer's; then tells the peer by a byte on
  // `socket`, and serves the link until the peer does. Once, on both sides, before anything else.
  Status probe(int socket, const Deadline& deadline);
  // Gives posted slots a short time to arrive.
  ~UcxEndpoint() override;

  Result<std::optional<SendSlot>> try_acquire_send() override;
  Status post_send(const SendSlot& slot, const SlotNote& note) override;
  Result<bool> try_send(std::span<const std::byte> bytes, const SlotNote& note) override;
  Result<bool> poll_sends() override;
  Result<std::optional<ReceivedSlot>> poll_receive() override;
  Status release_receive(const ReceivedSlot& slot) override;
  void wait(const Deadline& deadline) override;

 private:
  struct alignas(64) Line {
    std::array<std::byte, 64> bytes;
  };
  // The tags of headers without a slot.
  enum class Word : uint32_t { kCredit = 0, kLeaving = 1, kAllHere = 2 };
  static constexpr size_t kWords = 3;
  struct Outgoing {
    std::array<std::byte, kSlotHeaderBytes> header{};
    UcxEndpoint* owner = nullptr;
    bool is_under_way = false;
  };
  struct Incoming {
    enum class State { kFree, kFetching, kHere };
    SlotHeader header{};
    State state = State::kFree;
    const std::byte* payload = nullptr;
    void* kept = nullptr;  // UCX's own memory, to be given back
    UcxEndpoint* owner = nullptr;
  };
  struct Message {
    std::span<const std::byte> header;
    std::span<const std::byte> bytes;  // of an announced one only the size is right
    void* data = nullptr;
    bool is_announced = false;
    bool may_be_kept = false;
  };

  UcxEndpoint(EndpointInfo info, std::unique_ptr<UcxLink> link, std::unique_ptr<WakeEvent> wake,
              GroupHealth& health);

  static ucs_status_t on_message(void* self, const void* header, size_t header_bytes, void* data,
                                 size_t bytes, const ucp_am_recv_param_t* param);
  static void on_failure(void* self, ucp_ep_h ep, ucs_status_t status);
  static void on_sent(void* request, ucs_status_t status, void* outgoing);
  static void on_fetched(void* request, ucs_status_t status, size_t bytes, void* incoming);

  std::byte* slot_of(const std::unique_ptr<Line[]>& slots, uint64_t sequence) const {
    return slots[sequence % info().slots.count * (info().slots.payload_bytes / sizeof(Line))]
        .bytes.data();
  }
  Outgoing& outgoing(uint64_t sequence) { return outgoing_[sequence % info().slots.count]; }
  Incoming& incoming(uint64_t sequence) { return incoming_[sequence % info().slots.count]; }

  Result<bool> may_send();
  void post(uint64_t sequence, std::span<const std::byte> bytes, const SlotNote& note);
  void send(Outgoing& outgoing, const SlotHeader& header, std::span<const std::byte> bytes);
  void send_word(Word word);
  void send_credit_if_due();
  // True when something was done.
  bool progress();
  // Whether UCX keeps the message's data.
  bool take_message(const Message& message);
  void take_word(const SlotHeader& header);
  bool take_slot(const SlotHeader& header, const Message& message);
  bool fetch(Incoming& slot, const Message& message);
  void arrived(Incoming& slot, const std::byte* payload);
  void broken(std::string_view what, ucs_status_t status);
  Status failure_or_end();
  void leave();

  const UcxTable& table_;  // UCX calls back while the link ends
  std::unique_ptr<UcxLink> link_;
  std::unique_ptr<WakeEvent> wake_;
  bool is_probed_ = false;   // the link carries messages
  bool is_broken_ = false;   // nothing moves any more
  bool is_closing_ = false;  // whatever UCX still tells is of no use
  std::string broken_by_;
  std::optional<Nanoseconds> left_at_;  // when the peer's goodbye was seen

  // Sending: released_by_peer <= posted <= acquired; acquired - released_by_peer <= count.
  std::unique_ptr<Line[]> send_slots_;
  std::vector<Outgoing> outgoing_;  // by sequence % count
  std::array<Outgoing, kWords> words_;
  uint64_t acquired_ = 0;
  uint64_t posted_ = 0;
  uint64_t released_by_peer_ = 0;
  uint32_t under_way_ = 0;      // sends whose memory UCX still reads
  uint64_t released_told_ = 0;  // the released count of the last header

  // Receiving: released <= given <= arrived.
  std::unique_ptr<Line[]> receive_slots_;
  std::vector<Incoming> incoming_;  // by sequence % count
  bool has_heard_ = false;          // any header without a slot
  uint64_t arrived_ = 0;            // slots whose bytes are here, in whatever order
  uint64_t given_ = 0;
  uint64_t released_ = 0;
  std::optional<uint64_t> last_of_peer_;  // the last slot of a peer that leaves
  bool has_answered_leaving_ = false;
  bool is_all_there_ = false;  // the peer has all that we sent before leaving
};

}  // namespace shoal::fabric

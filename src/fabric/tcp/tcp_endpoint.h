// TcpEndpoint: the Endpoint over a stream socket.
//
// Each slot goes out as header and payload in one piece, from its buffer or from the caller's
// memory; headers carry the count of released slots, and a header without a slot carries only that.
// Every call moves what the socket takes and gives, so a thread that waits for one direction serves
// the other too. Thread rule: as endpoint.h.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "base/unique_fd.h"
#include "fabric/endpoint.h"
#include "fabric/link/slot_header.h"
#include "fabric/link/wake_event.h"

namespace shoal::fabric {

class TcpEndpoint final : public Endpoint {
 public:
  // `socket` is a connected stream, past the handshake and tuned.
  static Result<std::unique_ptr<TcpEndpoint>> create(EndpointInfo info, UniqueFd socket,
                                                     GroupHealth& health);
  // Gives posted slots a short time to leave.
  ~TcpEndpoint() override;

  Result<std::optional<SendSlot>> try_acquire_send() override;
  Status post_send(const SendSlot& slot, const SlotNote& note) override;
  Result<bool> try_send(std::span<const std::byte> bytes, const SlotNote& note) override;
  Result<bool> poll_sends() override;
  Result<std::optional<ReceivedSlot>> poll_receive() override;
  Status release_receive(const ReceivedSlot& slot) override;
  void wait(const Deadline& deadline) override;

 private:
  // A buffer holds header and payload; `index` below is sequence % count.
  using Buffer = std::unique_ptr<std::byte[]>;

  TcpEndpoint(EndpointInfo info, UniqueFd socket, std::unique_ptr<WakeEvent> wake,
              GroupHealth& health);

  Status closed(std::string_view how);
  Status failure_or_end();
  Status flush();
  Result<bool> may_send();
  void post(uint64_t sequence, const std::byte* payload, const SlotNote& note);
  void advance_sent(size_t bytes);
  Status read_some();
  Status take_frames();
  Status take_header(const SlotHeader& header);
  void queue_credit_if_due();
  void drain_before_close();

  std::byte* send_buffer(uint64_t sequence) {
    return send_buffers_[sequence % info().slots.count].get();
  }
  // One more than the slots: a credit header has room even when all slots are held.
  std::byte* receive_buffer(uint64_t sequence) {
    return receive_buffers_[sequence % (info().slots.count + 1)].get();
  }
  size_t buffer_bytes() const { return kSlotHeaderBytes + info().slots.payload_bytes; }

  UniqueFd socket_;
  std::unique_ptr<WakeEvent> wake_;
  bool is_closed_ = false;  // by the peer or by an error: nothing moves any more

  // Sending: sent <= posted <= acquired; posted - released_by_peer <= count.
  std::vector<Buffer> send_buffers_;
  struct Outgoing {
    uint32_t bytes = 0;                  // header included
    const std::byte* payload = nullptr;  // behind the header in its buffer, or the caller's own
  };
  std::vector<Outgoing> outgoing_;  // of each buffer
  uint64_t acquired_ = 0;
  uint64_t posted_ = 0;
  uint64_t sent_ = 0;        // whole slots
  size_t sent_of_next_ = 0;  // bytes of slot sent_ + 1
  uint64_t released_by_peer_ = 0;
  // A credit header on its way; it goes between two slots.
  std::array<std::byte, kSlotHeaderBytes> credit_{};
  size_t credit_left_ = 0;
  uint64_t released_told_ = 0;  // the released count of the last header

  // Receiving: released <= given <= arrived.
  std::vector<Buffer> receive_buffers_;
  uint64_t arrived_ = 0;
  uint64_t given_ = 0;
  uint64_t released_ = 0;
  size_t filled_ = 0;  // bytes in the buffer of slot arrived_ + 1
};

}  // namespace shoal::fabric

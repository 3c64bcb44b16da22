// Endpoint: one ordered, reliable channel of fixed-size slots to one peer.
//
// The interface is what verbs queue pairs offer everywhere (SEND and RECV with receives posted
// before the peer may send, completion by polling), so shared memory, TCP and the simulation fit it
// too. Slots are memory owned by the endpoint; both sides know their size and number. A send needs
// a credit: one receive slot that the peer has posted and nobody has used yet; credits are counted
// by us on every transport. Slots are acquired, posted, received and released strictly in order,
// and any number of them (up to the slot count) may be held at once.
//
// Thread rule: one thread at a time per endpoint. No method blocks except wait().
// Ownership: the endpoint borrows the group's GroupHealth, which outlives it.
// Failure: the first failure breaks the whole group (group_health.h); from then on every method
// returns that same kGroup status. Wire formats are specified in docs/fabric.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "fabric/group_health.h"

namespace shoal::fabric {

// The size class that both sides of a link agree on.
struct SlotClass {
  uint32_t payload_bytes = 64 * 1024;
  uint32_t count = 8;  // per direction
};

// Limits on what a launcher or peer may ask for.
inline constexpr uint32_t kSlotPayloadBytesMin = 64;
inline constexpr uint32_t kSlotPayloadBytesMax = 16 * 1024 * 1024;
inline constexpr uint32_t kSlotCountMin = 2;
inline constexpr uint32_t kSlotCountMax = 1024;

// kRequest when the class lies outside the limits above or is no multiple of 64 bytes.
Status check_slot_class(const SlotClass& slots);

class MappedMemory;

// A capability of some links: memory of the caller's that try_send() may send from without a copy.
// Used through RegisteredMemory (fabric.h).
class MemoryRegistrar {
 public:
  virtual ~MemoryRegistrar() = default;
  // Until unregister_memory(), before which it must not be unmapped. kNode: the device refused; all
  // works as before.
  virtual Status register_memory(std::span<std::byte> memory) = 0;
  virtual void unregister_memory(std::span<std::byte> memory) = 0;
};

// The port of an RDMA device that a link goes through.
struct LinkPort {
  std::string device{};
  int number = 1;
  int gid_index = 0;
  uint32_t mtu = 0;  // bytes
};

struct EndpointInfo {
  std::string link;  // "shm", "tcp", "verbs", "ucx" or "sim"
  int self_rank = 0;
  int peer_rank = 0;
  std::string peer_name;  // the peer's node name
  uint64_t epoch = 0;     // of the group
  SlotClass slots;
  // A capability that some links have: memory that all ranks map, beside the slots. Borrowed.
  MappedMemory* mapped = nullptr;
  MemoryRegistrar* registrar = nullptr;  // null where payloads are always copied. Borrowed.
  std::vector<LinkPort> ports{};         // over verbs: one for each cable in use
};

// A slot to be filled and posted. The index is the endpoint's own.
struct SendSlot {
  std::span<std::byte> payload;  // the whole slot
  uint32_t index = 0;
};

// What a slot carries of a message (see message.h).
struct SlotNote {
  uint32_t bytes = 0;         // of payload in use
  bool is_first = true;       // the first slot of its message
  uint64_t message_left = 0;  // bytes of the message from this slot on
  uint32_t tag = 0;           // what the message is for, as sender and receiver agree
};

// A slot that arrived; the payload stays valid until it is released.
struct ReceivedSlot {
  std::span<const std::byte> payload;  // the bytes in use
  SlotNote note;
  uint32_t index = 0;
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // The next slot to fill; none when there is no credit or no free buffer.
  virtual Result<std::optional<SendSlot>> try_acquire_send() = 0;
  // Hands the oldest acquired slot to the transport. note.bytes <= the slot's payload.
  virtual Status post_send(const SendSlot& slot, const SlotNote& note) = 0;
  // Posts a slot with these bytes (note.bytes of them), which are only sure to have been copied
  // when poll_sends() says true: until then they must stay as they are. False when there is no
  // credit or no free buffer. Not while an acquired slot is not posted.
  virtual Result<bool> try_send(std::span<const std::byte> bytes, const SlotNote& note);
  // True when the transport holds everything posted: the peer gets it without another call here
  // (over UCX's TCP with the next one: docs/ucx.md).
  virtual Result<bool> poll_sends() = 0;
  // The next slot that arrived, header checked; none when nothing has arrived.
  virtual Result<std::optional<ReceivedSlot>> poll_receive() = 0;
  // Gives the oldest received slot back: the peer gets a credit, at the latest when it would lack
  // half of them, or when poll_receive() finds nothing or wait() sleeps.
  virtual Status release_receive(const ReceivedSlot& slot) = 0;
  // Sleeps until something may have changed, the group fails or the deadline expires; may return
  // early for no reason.
  virtual void wait(const Deadline& deadline) = 0;

  const EndpointInfo& info() const { return info_; }
  GroupHealth& health() { return health_; }
  // "rank 1 (node-1) over shm".
  const std::string& peer_text() const { return peer_text_; }
  // Breaks the group with the peer as the culprit, and returns the group's failure.
  Status fail(std::string_view reason);

 protected:
  Endpoint(EndpointInfo info, GroupHealth& health);
  // For makers, when nothing more can come: the failure, or that the peer has left; or ok.
  Status failure_or_left();

 private:
  EndpointInfo info_;
  std::string peer_text_;
  GroupHealth& health_;
};

}  // namespace shoal::fabric

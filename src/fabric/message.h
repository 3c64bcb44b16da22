// Messages: any number of bytes over an Endpoint, cut into slots; and progress on many at once.
//
// A message is one or more slots: all but the last are full, the first is marked, each says how
// many bytes are left (an empty message is one empty slot). A message that fits a slot costs one
// copy in, and is read in place by whoever polls the endpoint directly. Thread rule: as the
// endpoint's. Failures break the group (kGroup), with these exceptions, which change nothing: kBusy
// from receive_message when no byte came before the deadline.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "fabric/endpoint.h"
#include "fabric/spin.h"

namespace shoal::fabric {

// One message on its way out. Borrows endpoint and bytes, until progress() says true or the group
// fails.
class OutgoingMessage {
 public:
  OutgoingMessage(Endpoint& endpoint, std::span<const std::byte> bytes, uint32_t tag)
      : endpoint_(endpoint), left_(bytes), tag_(tag) {}
  // Posts what credits allow; true when all is posted and the transport holds it.
  Result<bool> progress();
  // Slots posted so far.
  size_t slots_posted() const { return slots_posted_; }
  // Whether all are; the transport may still read the bytes.
  bool is_posted() const { return is_posted_; }

 private:
  Endpoint& endpoint_;
  std::span<const std::byte> left_;
  uint32_t tag_;
  bool is_posted_ = false;
  size_t slots_posted_ = 0;
};

// One message on its way in. Borrows endpoint and buffer.
class IncomingMessage {
 public:
  // Of exactly buffer.size() bytes: another size breaks the group.
  IncomingMessage(Endpoint& endpoint, std::span<std::byte> buffer, uint32_t tag)
      : endpoint_(endpoint),
        buffer_(buffer),
        bytes_max_(buffer.size()),
        tag_(tag),
        is_exact_(true) {}
  // Of up to bytes_max bytes, into a buffer that grows as they come.
  IncomingMessage(Endpoint& endpoint, size_t bytes_max, uint32_t tag)
      : endpoint_(endpoint), bytes_max_(bytes_max), tag_(tag), is_exact_(false) {}

  // Takes what has arrived; true when the message is complete.
  Result<bool> progress();
  bool has_started() const { return has_started_; }
  size_t bytes_received() const { return received_; }
  // The message, after progress() said true (second constructor only).
  std::vector<std::byte> take() { return std::move(grown_); }

 private:
  Status accept(const ReceivedSlot& slot);

  Endpoint& endpoint_;
  std::span<std::byte> buffer_;
  std::vector<std::byte> grown_;
  size_t bytes_max_;
  uint32_t tag_;
  bool is_exact_;
  bool has_started_ = false;
  bool is_complete_ = false;
  size_t received_ = 0;
  uint64_t expected_left_ = 0;
};

// What the next slot of a message must look like.
struct MessageExpectation {
  bool is_first = true;
  std::optional<uint64_t> left;  // exactly this many bytes are left, where it is known
  uint64_t left_max = 0;
  uint32_t tag = 0;
};

// For readers in place: breaks the group when the slot is not what is expected.
Status check_slot_of_message(Endpoint& endpoint, const ReceivedSlot& slot,
                             const MessageExpectation& expected);

struct SleepOptions {
  bool is_only_one = true;  // nothing but this endpoint is waited for
};

// endpoint.wait(), in short slices when other endpoints matter too.
void sleep_on(Endpoint& endpoint, const SleepOptions& options, const Deadline& deadline);

// What exchange() does with one peer: send one message, receive one, or both.
struct Transfer {
  Endpoint* endpoint = nullptr;
  std::optional<std::span<const std::byte>> send;
  std::optional<std::span<std::byte>> receive;  // of exactly this size
};

struct WaitPolicy {
  const SpinPolicy& spin;
  Deadline deadline;
  // Of every message sent or awaited: another tag breaks the group, since sender and receiver are
  // not in the same operation.
  uint32_t tag = 0;
};

// Completes all transfers, at most one per endpoint, making progress on every one of them at once:
// sends and receives never wait for each other. At the deadline the group is broken, naming the
// peers still waited for; `operation` begins the message.
Status exchange(std::span<const Transfer> transfers, std::string_view operation,
                const WaitPolicy& wait);

Status send_message(Endpoint& endpoint, std::span<const std::byte> bytes, const WaitPolicy& wait);

// Of exactly buffer.size() bytes.
Status receive_message_into(Endpoint& endpoint, std::span<std::byte> buffer,
                            const WaitPolicy& wait);

Result<std::vector<std::byte>> receive_message(Endpoint& endpoint, size_t bytes_max,
                                               const WaitPolicy& wait);

}  // namespace shoal::fabric

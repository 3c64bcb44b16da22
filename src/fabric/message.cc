#include "fabric/message.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory_resource>
#include <string>

#include "fabric/fabric.h"
#include "fabric/shm/mapped_memory.h"

namespace shoal::fabric {
namespace {

// While several peers are waited for, the sleep on one of them is cut into slices of this.
constexpr Nanoseconds kSharedWaitSlice = std::chrono::milliseconds(1);

// A growing message never allocates more than this ahead of the bytes that came.
constexpr size_t kGrowBytesAhead = size_t{1024} * 1024;

// Whether the peer has gone on to an operation in mapped memory. All that it sent before is here
// then, so if that is not enough, it never will be.
bool has_gone_on(const Endpoint& endpoint) {
  const MappedMemory* mapped = endpoint.info().mapped;
  return mapped != nullptr && mapped->is_ahead(endpoint.info().peer_rank);
}

constexpr std::string_view kGoneOn = "is in another operation, without what it owes this one";

}  // namespace

Result<bool> OutgoingMessage::progress() {
  while (!is_posted_) {
    const size_t bytes = std::min<size_t>(left_.size(), endpoint_.info().slots.payload_bytes);
    const SlotNote note{.bytes = static_cast<uint32_t>(bytes),
                        .is_first = slots_posted_ == 0,
                        .message_left = left_.size(),
                        .tag = tag_};
    ASSIGN_OR_RETURN(const bool is_sent, endpoint_.try_send(left_.first(bytes), note));
    if (!is_sent) return false;
    ++slots_posted_;
    left_ = left_.subspan(bytes);
    is_posted_ = left_.empty();
  }
  return endpoint_.poll_sends();
}

Status check_slot_of_message(Endpoint& endpoint, const ReceivedSlot& slot,
                             const MessageExpectation& expected) {
  const SlotNote& note = slot.note;
  if (note.is_first != expected.is_first) {
    return endpoint.fail("began a message in the middle of another one, or sent no beginning");
  }
  if (note.tag != expected.tag) {
    return endpoint.fail("is in another operation (its tag is " + std::to_string(note.tag) +
                         ", ours is " + std::to_string(expected.tag) + ")");
  }
  if (expected.left.has_value() && note.message_left != *expected.left) {
    return endpoint.fail("sent a message of " + std::to_string(note.message_left) +
                         " bytes where " + std::to_string(*expected.left) + " were expected");
  }
  if (note.message_left > expected.left_max) {
    return endpoint.fail("sent a message of " + std::to_string(note.message_left) +
                         " bytes, the limit is " + std::to_string(expected.left_max));
  }
  const uint64_t full = std::min<uint64_t>(note.message_left, endpoint.info().slots.payload_bytes);
  if (note.bytes != full) {
    return endpoint.fail("sent a slot of " + std::to_string(note.bytes) + " bytes where " +
                         std::to_string(full) + " belong");
  }
  return Status::ok();
}

Status IncomingMessage::accept(const ReceivedSlot& slot) {
  MessageExpectation expected{
      .is_first = !has_started_, .left = {}, .left_max = bytes_max_, .tag = tag_};
  if (has_started_) expected.left = expected_left_;
  if (!has_started_ && is_exact_) expected.left = buffer_.size();
  RETURN_IF_ERROR(check_slot_of_message(endpoint_, slot, expected));
  has_started_ = true;
  const std::span<const std::byte> bytes = slot.payload;
  if (is_exact_) {
    if (!bytes.empty()) std::memcpy(buffer_.data() + received_, bytes.data(), bytes.size());
  } else {
    if (grown_.capacity() < grown_.size() + bytes.size()) {
      const size_t ahead = std::max(kGrowBytesAhead, grown_.size());
      grown_.reserve(received_ + std::min<size_t>(slot.note.message_left, bytes.size() + ahead));
    }
    grown_.insert(grown_.end(), bytes.begin(), bytes.end());
  }
  received_ += bytes.size();
  expected_left_ = slot.note.message_left - bytes.size();
  is_complete_ = expected_left_ == 0;
  return Status::ok();
}

Result<bool> IncomingMessage::progress() {
  while (!is_complete_) {
    ASSIGN_OR_RETURN(const std::optional<ReceivedSlot> slot, endpoint_.poll_receive());
    if (!slot.has_value()) return false;
    RETURN_IF_ERROR(accept(*slot));
    RETURN_IF_ERROR(endpoint_.release_receive(*slot));
  }
  return true;
}

namespace {

// One transfer under way.
struct Pending {
  Pending(const Transfer& transfer, const WaitPolicy& wait) : endpoint(transfer.endpoint) {
    if (transfer.send.has_value()) {
      outgoing.emplace(*endpoint, *transfer.send, wait.tag);
      is_sent = false;
      send_bytes = transfer.send->size();
    }
    if (transfer.receive.has_value()) {
      incoming.emplace(*endpoint, *transfer.receive, wait.tag);
      is_received = false;
      receive_bytes = transfer.receive->size();
    }
  }

  Endpoint* endpoint = nullptr;
  std::optional<OutgoingMessage> outgoing;
  std::optional<IncomingMessage> incoming;
  bool is_sent = true;
  bool is_received = true;
  size_t send_bytes = 0;
  size_t receive_bytes = 0;

  bool is_done() const { return is_sent && is_received; }

  // True when something moved.
  Result<bool> progress() {
    bool has_moved = false;
    if (!is_sent) {
      const size_t before = outgoing->slots_posted();
      ASSIGN_OR_RETURN(is_sent, outgoing->progress());
      has_moved = is_sent || outgoing->slots_posted() != before;
    }
    if (!is_received) {
      const size_t before = incoming->bytes_received();
      ASSIGN_OR_RETURN(is_received, incoming->progress());
      has_moved = has_moved || is_received || incoming->bytes_received() != before;
    }
    return has_moved;
  }

  std::string describe() const {
    std::string text;
    if (!is_received) {
      text = std::to_string(incoming->bytes_received()) + " of " + std::to_string(receive_bytes) +
             " bytes received";
    }
    if (!is_sent) {
      text += std::string(text.empty() ? "" : ", ") + "not all of " + std::to_string(send_bytes) +
              " bytes taken";
    }
    return text;
  }
};

// Breaks the group, naming everyone who is still waited for, `culprit` first.
Status fail_at_deadline(std::span<const Pending> pending, const Pending& culprit,
                        std::string_view operation) {
  std::string others;
  for (const Pending& one : pending) {
    if (one.is_done() || &one == &culprit) continue;
    others += (others.empty() ? "; also waiting for " : ", ") + one.endpoint->peer_text();
  }
  return culprit.endpoint->fail("did not finish " + std::string(operation) +
                                " before the deadline: " + culprit.describe() + others);
}

// Progress until all are done; the heart of exchange().
Status complete_all(std::span<Pending> pending, std::string_view operation,
                    const WaitPolicy& wait) {
  Spinner spinner(wait.spin);
  while (true) {
    Pending* waiting = nullptr;
    size_t waiting_count = 0;
    bool has_moved = false;
    for (Pending& one : pending) {
      if (one.is_done()) continue;
      ASSIGN_OR_RETURN(const bool moved, one.progress());
      has_moved = has_moved || moved;
      if (one.is_done()) continue;
      if (waiting == nullptr) waiting = &one;
      ++waiting_count;
    }
    if (waiting == nullptr) return Status::ok();
    if (has_moved) {
      spinner.reset();
      continue;
    }
    if (spinner.spin_once()) continue;
    const auto gone = std::ranges::find_if(
        pending, [](const Pending& one) { return !one.is_done() && has_gone_on(*one.endpoint); });
    if (gone != pending.end()) {
      ASSIGN_OR_RETURN(const bool moved, gone->progress());
      if (!moved) return gone->endpoint->fail(kGoneOn);
      continue;
    }
    if (wait.deadline.expired()) return fail_at_deadline(pending, *waiting, operation);
    sleep_on(*waiting->endpoint, {.is_only_one = waiting_count == 1}, wait.deadline);
  }
}

}  // namespace

void sleep_on(Endpoint& endpoint, const SleepOptions& options, const Deadline& deadline) {
  endpoint.wait(options.is_only_one ? deadline : deadline.at_most(kSharedWaitSlice));
}

Status exchange(std::span<const Transfer> transfers, std::string_view operation,
                const WaitPolicy& wait) {
  CHECK(transfers.size() <= kGroupSizeMax);
  if (transfers.size() == 1) {
    Pending one(transfers.front(), wait);
    return complete_all({&one, 1}, operation, wait);
  }
  // On the stack, and only as much of it as there are transfers.
  alignas(Pending) std::array<std::byte, kGroupSizeMax * sizeof(Pending)> storage;
  std::pmr::monotonic_buffer_resource memory(storage.data(), storage.size(),
                                             std::pmr::null_memory_resource());
  std::pmr::vector<Pending> pending(&memory);
  pending.reserve(transfers.size());
  for (const Transfer& transfer : transfers) pending.emplace_back(transfer, wait);
  return complete_all(pending, operation, wait);
}

Status send_message(Endpoint& endpoint, std::span<const std::byte> bytes, const WaitPolicy& wait) {
  const Transfer transfer{.endpoint = &endpoint, .send = bytes, .receive = {}};
  return exchange({&transfer, 1}, "taking a message", wait);
}

Status receive_message_into(Endpoint& endpoint, std::span<std::byte> buffer,
                            const WaitPolicy& wait) {
  const Transfer transfer{.endpoint = &endpoint, .send = {}, .receive = buffer};
  return exchange({&transfer, 1}, "sending a message", wait);
}

Result<std::vector<std::byte>> receive_message(Endpoint& endpoint, size_t bytes_max,
                                               const WaitPolicy& wait) {
  IncomingMessage incoming(endpoint, bytes_max, wait.tag);
  Spinner spinner(wait.spin);
  while (true) {
    const size_t before = incoming.bytes_received();
    ASSIGN_OR_RETURN(const bool is_complete, incoming.progress());
    if (is_complete) return incoming.take();
    if (incoming.bytes_received() != before) spinner.reset();
    if (spinner.spin_once()) continue;
    if (has_gone_on(endpoint)) {
      ASSIGN_OR_RETURN(const bool is_here, incoming.progress());
      if (is_here) return incoming.take();
      if (incoming.bytes_received() == before) return endpoint.fail(kGoneOn);
      continue;
    }
    if (wait.deadline.expired()) {
      if (!incoming.has_started()) {
        return Status::busy(endpoint.peer_text() + ": no message before the deadline");
      }
      return endpoint.fail("did not finish sending a message before the deadline: " +
                           std::to_string(incoming.bytes_received()) + " bytes received");
    }
    endpoint.wait(wait.deadline);
  }
}

}  // namespace shoal::fabric

#include "fabric/sim/sim_endpoint.h"

#include <utility>

namespace shoal::fabric {

SimEndpoint::SimEndpoint(EndpointInfo info, SimNetwork& network, GroupHealth& health)
    : Endpoint(std::move(info), health),
      network_(network),
      send_buffers_(this->info().slots.count,
                    std::vector<std::byte>(this->info().slots.payload_bytes)) {}

SimEndpoint::~SimEndpoint() { network_.close_endpoint(info().self_rank); }

Result<std::optional<SendSlot>> SimEndpoint::try_acquire_send() {
  if (health().failed()) return health().failure();
  const uint32_t count = info().slots.count;
  if (acquired_ - network_.credits(outgoing()) >= count) {
    RETURN_IF_ERROR(failure_or_left());
    return std::optional<SendSlot>();
  }
  const auto index = static_cast<uint32_t>(acquired_++ % count);
  return std::optional<SendSlot>({send_buffers_[index], index});
}

Status SimEndpoint::post_send(const SendSlot& slot, const SlotNote& note) {
  CHECK(posted_ < acquired_ && slot.index == posted_ % info().slots.count);
  CHECK(note.bytes <= info().slots.payload_bytes && note.bytes <= note.message_left);
  if (health().failed()) return health().failure();
  ++posted_;
  const SlotHeader header{.magic = kSlotMagic,
                          .bytes = note.bytes,
                          .epoch = info().epoch,
                          .sequence = posted_,
                          .message_left = note.message_left,
                          .released = 0,
                          .flags = note.is_first ? kFlagFirst : 0,
                          .tag = note.tag};
  const auto used = std::span(send_buffers_[slot.index]).first(note.bytes);
  network_.send_slot(outgoing(), {header, {used.begin(), used.end()}});
  return Status::ok();
}

Result<bool> SimEndpoint::poll_sends() {
  if (health().failed()) return health().failure();
  return true;
}

Result<std::optional<ReceivedSlot>> SimEndpoint::poll_receive() {
  if (health().failed()) return health().failure();
  std::optional<SimNetwork::Slot> slot = network_.take_slot(incoming());
  if (!slot.has_value()) {
    RETURN_IF_ERROR(failure_or_left());
    return std::optional<ReceivedSlot>();
  }
  const SlotExpectation expected{.epoch = info().epoch,
                                 .sequence = received_ + 1,
                                 .payload_bytes = info().slots.payload_bytes};
  if (const auto fault = find_slot_fault(slot->header, expected); fault.has_value()) {
    return fail(*fault);
  }
  held_.push_back(std::move(*slot));
  const auto index = static_cast<uint32_t>(received_++ % info().slots.count);
  return std::optional<ReceivedSlot>({held_.back().payload, note_of(held_.back().header), index});
}

Status SimEndpoint::release_receive(const ReceivedSlot& slot) {
  CHECK(released_ < received_ && slot.index == released_ % info().slots.count);
  held_.pop_front();
  network_.send_credits(incoming(), ++released_);
  return health().failed() ? health().failure() : Status::ok();
}

void SimEndpoint::wait(const Deadline& deadline) {
  if (!health().failed()) network_.wait(info().self_rank, deadline);
}

}  // namespace shoal::fabric

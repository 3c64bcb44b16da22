#include "fabric/verbs/verbs_endpoint.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/spin_pause.h"

namespace shoal::fabric {
namespace {

// A payload from this size on is sent in place; a smaller one is copied sooner than the completion
// of its send comes back.
constexpr size_t kInPlaceBytesMin = 16 * 1024;
// Completions taken at once.
constexpr size_t kCompletions = 16;
// How long a closing endpoint waits for what it has sent to arrive.
constexpr Nanoseconds kLinger = std::chrono::milliseconds(200);
// A provider whose events get lost cannot keep us asleep longer than this.
constexpr Nanoseconds kSleepMax = std::chrono::milliseconds(500);

// Behind the slot header: the number of the message in its lane; the rest stays zero, as the
// pages came.
constexpr size_t kLaneNumberAt = kSlotHeaderBytes;
static_assert(kVerbsHeaderBytes >= kLaneNumberAt + sizeof(uint64_t));

}  // namespace

Result<std::unique_ptr<VerbsEndpoint>> VerbsEndpoint::create(EndpointInfo info,
                                                             std::unique_ptr<VerbsLink> link,
                                                             GroupHealth& health) {
  info.registrar = link.get();
  ASSIGN_OR_RETURN(auto wake, WakeEvent::create(health));
  for (const VerbsRailPtr& rail : link->rails()) {
    const VerbsPort& port = rail->port();
    info.ports.push_back({.device = port.device,
                          .number = port.number,
                          .gid_index = port.gid_index,
                          .mtu = mtu_bytes(port.mtu)});
  }
  return std::unique_ptr<VerbsEndpoint>(
      new VerbsEndpoint(std::move(info), std::move(link), std::move(wake), health));
}

VerbsEndpoint::VerbsEndpoint(EndpointInfo info, std::unique_ptr<VerbsLink> link,
                             std::unique_ptr<WakeEvent> wake, GroupHealth& health)
    : Endpoint(std::move(info), health),
      link_(std::move(link)),
      wake_(std::move(wake)),
      held_(this->info().slots.count) {
  for (int i = 0; i < link_->lanes(); ++i) {
    lanes_.push_back({.arrivals = ArrivalQueue(this->info().slots.count)});
  }
}

VerbsEndpoint::~VerbsEndpoint() {
  const bool is_heard = !health().failed() && !health().has_left(info().peer_rank);
  if (!is_broken_ && is_heard) drain_before_close();
}

// A queue pair that is destroyed takes what is under way with it. A last signaled message in each
// lane that has unsignaled ones tells when all have arrived; one lane after the other, because all
// share the memory of these messages.
void VerbsEndpoint::drain_before_close() {
  const Deadline deadline = Deadline::after(kLinger);
  for (size_t i = 0; i < lanes_.size(); ++i) {
    const Lane& lane = lanes_[i];
    if (lane.signaled < lane.posted && has_place(lane) &&
        !send_credit(static_cast<int>(i), /*is_signaled=*/true).is_ok()) {
      return;
    }
    while (!is_broken_ && lane.completed < lane.signaled && !deadline.expired()) {
      if (!take_sends().is_ok()) return;
      spin_pause();
    }
  }
}

// The queue pair is in its error state. Why, the monitor knows better: it has a verdict soon.
Status VerbsEndpoint::broken(const ibv_wc& completion, std::string_view what) {
  if (std::exchange(is_broken_, true)) return Status::ok();
  const VerbsRail& rail = link_->rail_of(VerbsRail::lane_of(completion.wr_id));
  health().suspect(info().peer_rank,
                   fmt::format("over {} on {}: {}", info().link, rail.port().text(),
                               rail.failure_text(completion, what)));
  return Status::ok();
}

// Our own device, not the peer: the others are told so.
Status VerbsEndpoint::device_failed(const Status& status) {
  health().fail(info().self_rank, "cannot go on over " + info().link + ": " + status.message());
  return health().failure();
}

// A goodbye may overtake what was sent before it: it is final once nothing is left to be read.
Status VerbsEndpoint::failure_or_end() {
  const bool may_be_last = is_broken_ || health().failed() || health().has_left(info().peer_rank);
  if (!may_be_last) return Status::ok();
  ASSIGN_OR_RETURN(const bool is_more, take_receives());
  return is_more ? Status::ok() : failure_or_left();
}

Result<bool> VerbsEndpoint::take_sends() {
  std::array<ibv_wc, kCompletions> completions;
  bool has_any = false;
  size_t count = kCompletions;
  while (count == kCompletions) {
    const auto polled = link_->poll_sends(completions);
    if (!polled.is_ok()) return device_failed(polled.status());
    count = *polled;
    has_any = has_any || count > 0;
    for (size_t i = 0; i < count; ++i) RETURN_IF_ERROR(take_send(completions[i]));
  }
  return has_any;
}

Status VerbsEndpoint::take_send(const ibv_wc& completion) {
  const int index = VerbsRail::lane_of(completion.wr_id);
  if (!link_->has_lane(index)) {
    return device_failed(Status::node("a send completes that was not posted"));
  }
  if (completion.status != IBV_WC_SUCCESS) return broken(completion, "a send");
  Lane& lane = lanes_[static_cast<size_t>(index)];
  const uint64_t number = VerbsRail::number_of(completion.wr_id);
  if (number <= lane.completed || number > lane.posted) {
    return device_failed(Status::node("a send completes that was not posted"));
  }
  lane.completed = number;  // and all before it
  return Status::ok();
}

Result<bool> VerbsEndpoint::take_receives() {
  std::array<ibv_wc, kCompletions> completions;
  const auto count = link_->poll_receives(completions);
  if (!count.is_ok()) return device_failed(count.status());
  for (size_t i = 0; i < *count; ++i) {
    const ibv_wc& completion = completions[i];
    const int lane = VerbsRail::lane_of(completion.wr_id);
    const uint64_t receive = VerbsRail::number_of(completion.wr_id);
    if (!link_->has_lane(lane) || receive >= link_->layout().receives) {
      return device_failed(Status::node("a receive completes that was not posted"));
    }
    if (completion.status != IBV_WC_SUCCESS) {
      RETURN_IF_ERROR(broken(completion, "a receive"));
      continue;
    }
    RETURN_IF_ERROR(
        take_message({.lane = lane, .receive = static_cast<uint32_t>(receive)}, completion));
  }
  if (*count > 0 && due_arrival() == nullptr) RETURN_IF_ERROR(check_order());
  // Credits that found no place in the queue before.
  RETURN_IF_ERROR(send_credit_if_due());
  return *count > 0;
}

Status VerbsEndpoint::take_released(uint64_t released) {
  if (released > posted_) return fail("sent an impossible count of released slots");
  // What one lane carries may be older than what another has brought.
  released_by_peer_ = std::max(released_by_peer_, released);
  return Status::ok();
}

Status VerbsEndpoint::take_message(Arrival arrival, const ibv_wc& completion) {
  Lane& lane = lanes_[static_cast<size_t>(arrival.lane)];
  const uint32_t bytes = completion.byte_len;
  if (bytes > link_->rail_of(arrival.lane).receive_bytes(arrival.lane)) {
    return fail(fmt::format("sent a message of {} bytes", bytes));
  }
  std::optional<uint32_t> immediate;
  if (link_->layout().has_short_headers) immediate = VerbsRail::immediate_of(completion);
  if (immediate.has_value()) {
    // A write to memory could say the same, and leave the receive as it was.
    if (completion.opcode != IBV_WC_RECV) return fail("did something else than send");
    arrival.short_header = ShortHeader::from_word(*immediate);
  }
  RETURN_IF_ERROR(immediate.has_value() ? read_short_header(arrival, bytes)
                                        : read_header(arrival, bytes));
  ++lane.arrived;
  lane.released = arrival.released;
  RETURN_IF_ERROR(take_released(arrival.released));
  if (arrival.is_credit) return post_receive(arrival.lane, arrival.receive);
  const uint64_t sequence = arrival.sequence;
  if (sequence <= given_ || sequence > returned_ + info().slots.count || lane.arrivals.is_full()) {
    return fail(fmt::format("sent slot number {} without a credit", sequence));
  }
  if (sequence <= lane.sequence) {
    return fail(fmt::format("sent slot number {} behind number {}: one was doubled or overtaken",
                            sequence, lane.sequence));
  }
  lane.sequence = sequence;
  lane.arrivals.push(arrival);
  return Status::ok();
}

Status VerbsEndpoint::read_header(Arrival& arrival, uint32_t bytes) {
  if (bytes < kVerbsHeaderBytes) return fail(fmt::format("sent a message of {} bytes", bytes));
  const std::byte* from = link_->rail_of(arrival.lane).receive(arrival.lane, arrival.receive);
  const SlotHeader header =
      decode_slot_header(std::span<const std::byte, kSlotHeaderBytes>(from, kSlotHeaderBytes));
  uint64_t number = 0;
  std::memcpy(&number, from + kLaneNumberAt, sizeof(number));
  arrival.is_credit = (header.flags & kFlagCredit) != 0;
  // Which slot it is, is looked at when it is due: other lanes may be behind.
  const SlotExpectation expected{
      .epoch = info().epoch,
      .sequence = header.sequence,
      .payload_bytes = arrival.is_credit ? 0 : info().slots.payload_bytes};
  if (const auto fault = find_slot_fault(header, expected); fault.has_value()) return fail(*fault);
  const uint64_t due = lanes_[static_cast<size_t>(arrival.lane)].arrived + 1;
  if (number != due) {
    return fail(
        fmt::format("sent message {} of lane {} where {} was due: one was lost, doubled or "
                    "overtaken",
                    number, arrival.lane, due));
  }
  if (kVerbsHeaderBytes + header.bytes > bytes) return fail("sent a slot that was cut off");
  arrival.sequence = header.sequence;
  arrival.released = header.released;
  arrival.whole_note = note_of(header);
  return Status::ok();
}

// What its note is, shows when the slots before it have come.
Status VerbsEndpoint::read_short_header(Arrival& arrival, uint32_t bytes) {
  const ShortHeader& header = *arrival.short_header;
  if (bytes > info().slots.payload_bytes) {
    return fail(fmt::format("sent a message of {} bytes with a short header", bytes));
  }
  if (!header.fits(bytes)) {
    return fail(fmt::format("sent a message that was cut off, of which {} bytes came", bytes));
  }
  arrival.is_credit = header.is_credit();
  arrival.sequence = header.sequence_from(given_);
  arrival.released = header.released_from(lanes_[static_cast<size_t>(arrival.lane)].released);
  arrival.whole_note.bytes = bytes;
  return Status::ok();
}

Result<bool> VerbsEndpoint::may_send() {
  if (health().failed()) return health().failure();
  const auto has_room = [&] {
    return acquired_ - released_by_peer_ < info().slots.count &&
           std::ranges::all_of(lanes_, [&](const Lane& lane) { return has_place(lane); });
  };
  if (has_room()) return true;
  RETURN_IF_ERROR(take_sends().status());
  RETURN_IF_ERROR(take_receives().status());
  if (has_room()) return true;
  RETURN_IF_ERROR(failure_or_end());
  return false;
}

Result<std::optional<SendSlot>> VerbsEndpoint::try_acquire_send() {
  ASSIGN_OR_RETURN(const bool may, may_send());
  if (!may) return std::optional<SendSlot>();
  const uint64_t sequence = ++acquired_;
  return std::optional<SendSlot>(
      {std::span(link_->send_slot(sequence) + kVerbsHeaderBytes, info().slots.payload_bytes),
       static_cast<uint32_t>(sequence % info().slots.count)});
}

Status VerbsEndpoint::post_send(const SendSlot& slot, const SlotNote& note) {
  const uint64_t sequence = posted_ + 1;
  CHECK(posted_ < acquired_ && slot.index == sequence % info().slots.count);
  CHECK(note.bytes <= info().slots.payload_bytes && note.bytes <= note.message_left);
  if (health().failed()) return health().failure();
  return send_slot(note, {.from = link_->send_slot(sequence)});
}

Status VerbsEndpoint::send_slot(const SlotNote& note, Message message) {
  message.header =
      slot_header({.epoch = info().epoch, .sequence = ++posted_, .released = returned_}, note);
  ASSIGN_OR_RETURN(int lane, choose_lane(note.bytes));
  if (may_be_short(lane)) {
    message.short_header = ShortHeader::of_slot(message.header, sent_trail_);
  }
  if (!message.short_header.has_value()) {
    ASSIGN_OR_RETURN(lane, choose_lane(kVerbsHeaderBytes + note.bytes));
  }
  sent_trail_ = SlotTrail::behind(note);
  return send(lane, message);
}

// Signaled sends tell how many are under way.
Result<int> VerbsEndpoint::choose_lane(uint32_t bytes) {
  const int first = link_->layout().lane_for(bytes);
  if (first < link_->first_whole_slot_lane() || first + 1 == link_->lanes()) return first;
  RETURN_IF_ERROR(take_sends().status());
  const auto best =
      std::min_element(lanes_.begin() + first, lanes_.end(), [](const Lane& a, const Lane& b) {
        return std::pair(a.posted - a.completed, a.posted) <
               std::pair(b.posted - b.completed, b.posted);
      });
  return static_cast<int>(best - lanes_.begin());
}

Result<bool> VerbsEndpoint::try_send(std::span<const std::byte> bytes, const SlotNote& note) {
  if (bytes.size() < kInPlaceBytesMin || !link_->is_registered(bytes)) {
    return Endpoint::try_send(bytes, note);
  }
  CHECK(posted_ == acquired_ && bytes.size() == note.bytes);
  CHECK(note.bytes <= info().slots.payload_bytes && note.bytes <= note.message_left);
  ASSIGN_OR_RETURN(const bool may, may_send());
  if (!may) return false;
  ++acquired_;
  RETURN_IF_ERROR(send_slot(
      note, {.from = link_->send_slot(acquired_), .in_place = bytes, .is_signaled = true}));
  return true;
}

Status VerbsEndpoint::send(int lane_index, const Message& message) {
  if (is_broken_) return Status::ok();  // it has a verdict soon
  Lane& lane = lanes_[static_cast<size_t>(lane_index)];
  const uint64_t number = ++lane.posted;
  // A quarter of the queue without a completion is the most; none where lanes are chosen by them.
  const bool is_one_of_several =
      link_->rails().size() > 1 && lane_index >= link_->first_whole_slot_lane();
  const bool is_signaled = message.is_signaled || is_one_of_several ||
                           number - lane.signaled >= std::max(1U, link_->sends_max() / 4);
  if (is_signaled) lane.signaled = number;
  if (!message.in_place.empty()) lane.in_place = number;
  told_ = lane.told = message.header.released;
  VerbsRail& rail = link_->rail_of(lane_index);
  VerbsRail::Send work{.in_place = message.in_place,
                       .id = VerbsRail::make_id(lane_index, number),
                       .is_signaled = is_signaled};
  const uint32_t behind_header = message.in_place.empty() ? message.header.bytes : 0;
  if (message.short_header.has_value()) {
    work.from = message.from + kVerbsHeaderBytes;
    work.bytes = behind_header;
    work.immediate = message.short_header->word();
  } else {
    encode_slot_header(message.header,
                       std::span<std::byte, kSlotHeaderBytes>(message.from, kSlotHeaderBytes));
    std::memcpy(message.from + kLaneNumberAt, &number, sizeof(number));
    work.from = message.from;
    work.bytes = message.in_place.empty() ? rail.message_bytes(lane_index, behind_header)
                                          : kVerbsHeaderBytes;
  }
  const Status status = rail.post_send(lane_index, work);
  return status.is_ok() ? status : device_failed(status);
}

Result<bool> VerbsEndpoint::poll_sends() {
  if (health().failed()) {
    // The caller has its memory back.
    if (reads_callers_memory() && !std::exchange(is_stopped_, true)) {
      is_broken_ = true;
      link_->stop();
    }
    return health().failure();
  }
  // The device needs nobody here to send what is posted, but reads in-place payloads until it says
  // that it is done.
  if (!reads_callers_memory()) return true;
  RETURN_IF_ERROR(take_sends().status());
  // What a peer that has left did not take, it never will.
  return !reads_callers_memory() || health().has_left(info().peer_rank);
}

bool VerbsEndpoint::waits_for_sends() const {
  return reads_callers_memory() ||
         !std::ranges::all_of(lanes_, [&](const Lane& lane) { return has_place(lane); });
}

bool VerbsEndpoint::reads_callers_memory() const {
  return std::ranges::any_of(lanes_,
                             [](const Lane& lane) { return lane.completed < lane.in_place; });
}

const VerbsEndpoint::Arrival* VerbsEndpoint::due_arrival() const {
  for (const Lane& lane : lanes_) {
    if (!lane.arrivals.is_empty() && lane.arrivals.front().sequence == given_ + 1) {
      return &lane.arrivals.front();
    }
  }
  return nullptr;
}

// Lanes keep their own order: what is due is at the front of one, or still to come in an empty one.
Status VerbsEndpoint::check_order() {
  bool is_missing = true;
  for (const Lane& lane : lanes_) {
    if (lane.arrivals.is_empty()) {
      is_missing = false;
    } else if (const uint64_t front = lane.arrivals.front().sequence; front <= given_) {
      return fail(fmt::format("sent slot number {} twice", front));
    }
  }
  return is_missing ? fail(fmt::format("never sent slot number {}", given_ + 1)) : Status::ok();
}

Result<std::optional<ReceivedSlot>> VerbsEndpoint::poll_receive() {
  if (health().failed()) return health().failure();
  if (given_ - released_ >= info().slots.count) return std::optional<ReceivedSlot>();
  const Arrival* arrival = due_arrival();
  if (arrival == nullptr) {
    ASSIGN_OR_RETURN(const bool has_any, take_receives());
    if (has_any) arrival = due_arrival();
  }
  if (arrival == nullptr) {
    // There is time now: before, the caller had something to do with what it got.
    RETURN_IF_ERROR(return_released());
    RETURN_IF_ERROR(failure_or_end());
    return std::optional<ReceivedSlot>();
  }
  const uint64_t sequence = ++given_;
  Arrival& held = held_[sequence % info().slots.count];
  held = *arrival;
  lanes_[static_cast<size_t>(held.lane)].arrivals.pop();
  const SlotNote note = held.note(given_trail_);
  if (note.bytes > note.message_left) {
    return fail("sent a slot that is longer than what its message has left");
  }
  given_trail_ = SlotTrail::behind(note);
  const std::byte* payload =
      link_->rail_of(held.lane).receive(held.lane, held.receive) + held.payload_at();
  return std::optional<ReceivedSlot>(
      {std::span(payload, note.bytes), note, static_cast<uint32_t>(sequence % info().slots.count)});
}

Status VerbsEndpoint::release_receive(const ReceivedSlot& slot) {
  CHECK(released_ < given_ && slot.index == (released_ + 1) % info().slots.count);
  ++released_;
  if (health().failed()) return health().failure();
  return released_ - told_ < untold_max() ? Status::ok() : return_released();
}

Status VerbsEndpoint::return_released() {
  if (is_broken_ || returned_ == released_) return Status::ok();
  while (returned_ < released_) {
    const Arrival& held = held_[(returned_ + 1) % info().slots.count];
    RETURN_IF_ERROR(post_receive(held.lane, held.receive));
    ++returned_;
  }
  return send_credit_if_due();
}

Status VerbsEndpoint::post_receive(int lane, uint32_t receive) {
  const Status status = link_->rail_of(lane).post_receive(lane, receive);
  return status.is_ok() ? status : device_failed(status);
}

// Slots that we send carry the count too; a message of its own is for one-sided traffic.
Status VerbsEndpoint::send_credit_if_due() {
  if (is_broken_ || returned_ - told_ < untold_max()) return Status::ok();
  if (!has_place(lanes_[0])) {
    RETURN_IF_ERROR(take_sends().status());
    if (!has_place(lanes_[0])) return Status::ok();  // with the next one
  }
  return send_credit(0, /*is_signaled=*/false);
}

Status VerbsEndpoint::send_credit(int lane, bool is_signaled) {
  Message message{
      .from = link_->control_message(controls_sent_++),
      .header = credit_header({.epoch = info().epoch, .sequence = posted_, .released = returned_}),
      .is_signaled = is_signaled};
  if (may_be_short(lane)) message.short_header = ShortHeader::of_credits(returned_);
  return send(lane, message);
}

// Armed first, then looked at once more, so that nothing falls between.
void VerbsEndpoint::wait(const Deadline& deadline) {
  if (health().failed()) return;
  const auto has_news = [this] {
    const auto sends = take_sends();
    const auto receives = take_receives();
    return !sends.is_ok() || !receives.is_ok() || *sends || *receives;
  };
  if (!return_released().is_ok()) return;
  if (!is_broken_) {
    const Status armed = link_->arm(waits_for_sends());
    if (!armed.is_ok()) (void)device_failed(armed);
    if (!armed.is_ok() || has_news()) return;
  }
  const short happened =
      wake_->sleep(is_broken_ ? -1 : link_->event_fd(), POLLIN, deadline.at_most(kSleepMax));
  if ((happened & POLLIN) != 0) link_->take_events();
}

}  // namespace shoal::fabric

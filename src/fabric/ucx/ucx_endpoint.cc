#include "fabric/ucx/ucx_endpoint.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "fabric/link/stream.h"

namespace shoal::fabric {
namespace {

// How long a closing endpoint waits to hear that what it has sent is there.
constexpr Nanoseconds kLinger = std::chrono::milliseconds(200);
// How long ending the connection may take after that.
constexpr Nanoseconds kCloseMax = std::chrono::milliseconds(200);
// What a peer sent before its goodbye arrives within this, when it left without saying so here.
constexpr Nanoseconds kLeftGrace = std::chrono::milliseconds(200);
// An event that UCX does not tell cannot keep us asleep longer than this.
constexpr Nanoseconds kSleepMax = std::chrono::milliseconds(500);
constexpr Nanoseconds kProbeSlice = std::chrono::milliseconds(1);
// Fewer bytes are copied out of UCX's memory, which has them back at once.
constexpr size_t kKeptBytesMin = 4096;
constexpr uintptr_t kAlignment = 64;

}  // namespace

Result<std::unique_ptr<UcxEndpoint>> UcxEndpoint::create(EndpointInfo info,
                                                         std::unique_ptr<UcxLink> link,
                                                         GroupHealth& health) {
  ASSIGN_OR_RETURN(auto wake, WakeEvent::create(health));
  return std::unique_ptr<UcxEndpoint>(
      new UcxEndpoint(std::move(info), std::move(link), std::move(wake), health));
}

UcxEndpoint::UcxEndpoint(EndpointInfo info, std::unique_ptr<UcxLink> link,
                         std::unique_ptr<WakeEvent> wake, GroupHealth& health)
    : Endpoint(std::move(info), health),
      table_(link->table()),
      link_(std::move(link)),
      wake_(std::move(wake)) {
  const SlotClass& slots = this->info().slots;
  const size_t lines = size_t{slots.count} * (slots.payload_bytes / sizeof(Line));
  send_slots_ = std::make_unique<Line[]>(lines);
  receive_slots_ = std::make_unique<Line[]>(lines);
  outgoing_.resize(slots.count);
  incoming_.resize(slots.count);
  for (Outgoing& one : outgoing_) one.owner = this;
  for (Outgoing& one : words_) one.owner = this;
  for (Incoming& one : incoming_) one.owner = this;
}

Status UcxEndpoint::connect(std::span<const std::byte> peer_address, UcxLink::Errors errors) {
  return link_->connect(peer_address, errors,
                        {.on_message = &on_message, .on_failure = &on_failure, .argument = this});
}

UcxEndpoint::~UcxEndpoint() {
  const bool is_heard = !health().failed() && !health().has_left(info().peer_rank);
  if (is_probed_ && !is_broken_ && is_heard) leave();
  is_closing_ = true;
  for (Incoming& one : incoming_) {
    if (one.kept != nullptr) link_->release(one.kept);
  }
  // A connection that closes in good order sends what is left first, and whoever owned that memory
  // may have it back by now.
  if (link_->can_cancel() || under_way_ == 0) link_->close(Deadline::after(kCloseMax));
  link_.reset();
}

// What UCX has sent may still be lost when it closes, so the peer says that it has all of it. A
// peer that leaves too reads no more.
void UcxEndpoint::leave() {
  const Deadline deadline = Deadline::after(kLinger);
  if (!last_of_peer_.has_value()) send_word(Word::kLeaving);
  const auto is_over = [this] {
    return is_broken_ || health().failed() ||
           ((is_all_there_ || last_of_peer_.has_value()) && under_way_ == 0);
  };
  while (!is_over() && !deadline.expired()) {
    if (!progress()) wait(deadline);
  }
}

Status UcxEndpoint::probe(int socket, const Deadline& deadline) {
  send_word(Word::kCredit);
  bool has_told = false;
  bool is_peer_ready = false;
  while (!has_told || !is_peer_ready) {
    progress();
    if (health().failed()) return health().failure();
    if (is_broken_) return Status::group("the first message does not come through: " + broken_by_);
    if (!has_told && has_heard_) {
      RETURN_IF_ERROR(send_ready(socket, deadline));
      has_told = true;
    }
    if (!is_peer_ready) {
      ASSIGN_OR_RETURN(is_peer_ready, take_ready(socket));
    }
    if (deadline.expired()) {
      return Status::group(
          "the first message does not come through: UCX_TLS and UCX_NET_DEVICES, where they are "
          "set, must name what reaches the peer, on both ends");
    }
    if (!has_told || !is_peer_ready) wait(deadline.at_most(kProbeSlice));
  }
  is_probed_ = true;
  return Status::ok();
}

// Why UCX can go no further, the monitor knows better: it has a verdict soon.
void UcxEndpoint::broken(std::string_view what, ucs_status_t status) {
  if (is_closing_ || std::exchange(is_broken_, true)) return;
  broken_by_ = fmt::format("{} ended with \"{}\"", what, table_.status_string(status));
  health().suspect(info().peer_rank, fmt::format("over {}: {}", info().link, broken_by_));
}

void UcxEndpoint::on_failure(void* self, ucp_ep_h /*ep*/, ucs_status_t status) {
  static_cast<UcxEndpoint*>(self)->broken("the connection", status);
}

void UcxEndpoint::on_sent(void* request, ucs_status_t status, void* outgoing) {
  auto& sent = *static_cast<Outgoing*>(outgoing);
  UcxEndpoint& self = *sent.owner;
  sent.is_under_way = false;
  --self.under_way_;
  if (status != UCS_OK) self.broken("a send", status);
  self.table_.request_free(request);
}

void UcxEndpoint::on_fetched(void* request, ucs_status_t status, size_t bytes, void* incoming) {
  auto& fetched = *static_cast<Incoming*>(incoming);
  UcxEndpoint& self = *fetched.owner;
  if (status != UCS_OK || bytes != fetched.header.bytes) {
    self.broken("a fetch", status == UCS_OK ? UCS_ERR_MESSAGE_TRUNCATED : status);
  } else {
    self.arrived(fetched, self.slot_of(self.receive_slots_, fetched.header.sequence));
  }
  self.table_.request_free(request);
}

ucs_status_t UcxEndpoint::on_message(void* self_pointer, const void* header, size_t header_bytes,
                                     void* data, size_t bytes, const ucp_am_recv_param_t* param) {
  auto& self = *static_cast<UcxEndpoint*>(self_pointer);
  if (self.is_closing_ || self.health().failed()) return UCS_OK;
  const bool is_kept =
      self.take_message({.header = {static_cast<const std::byte*>(header), header_bytes},
                         .bytes = {static_cast<const std::byte*>(data), bytes},
                         .data = data,
                         .is_announced = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0,
                         .may_be_kept = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_DATA) != 0});
  return is_kept ? UCS_INPROGRESS : UCS_OK;
}

bool UcxEndpoint::take_message(const Message& message) {
  if (message.header.size() != kSlotHeaderBytes) {
    (void)fail(fmt::format("sent a header of {} bytes", message.header.size()));
    return false;
  }
  const SlotHeader header = decode_slot_header(message.header.first<kSlotHeaderBytes>());
  const bool is_word = (header.flags & kFlagCredit) != 0;
  // Which slot it is, is looked at below: they arrive in any order.
  const SlotExpectation expected{.epoch = info().epoch,
                                 .sequence = header.sequence,
                                 .payload_bytes = is_word ? 0 : info().slots.payload_bytes};
  if (const auto fault = find_slot_fault(header, expected); fault.has_value()) {
    (void)fail(*fault);
    return false;
  }
  if (message.bytes.size() != header.bytes) {
    (void)fail(
        fmt::format("sent {} bytes where its header says {}", message.bytes.size(), header.bytes));
    return false;
  }
  if (header.released > posted_) {
    (void)fail("sent an impossible count of released slots");
    return false;
  }
  released_by_peer_ = std::max(released_by_peer_, header.released);
  if (!is_word) return take_slot(header, message);
  take_word(header);
  return false;
}

void UcxEndpoint::take_word(const SlotHeader& header) {
  has_heard_ = true;
  switch (static_cast<Word>(header.tag)) {
    case Word::kCredit:
      return;
    case Word::kLeaving:
      if (header.sequence < arrived_ || header.sequence > released_ + info().slots.count) {
        (void)fail(fmt::format("leaves after slot number {}, which cannot be", header.sequence));
      } else {
        last_of_peer_ = header.sequence;
      }
      return;
    case Word::kAllHere:
      is_all_there_ = true;
      return;
  }
  (void)fail(fmt::format("sent an unknown word ({})", header.tag));
}

bool UcxEndpoint::take_slot(const SlotHeader& header, const Message& message) {
  Incoming& slot = incoming(header.sequence);
  if (header.sequence <= released_ || header.sequence > released_ + info().slots.count ||
      slot.state != Incoming::State::kFree) {
    (void)fail(fmt::format("sent slot number {} twice or without a credit", header.sequence));
    return false;
  }
  slot.header = header;
  if (message.is_announced) return fetch(slot, message);
  const bool is_aligned = reinterpret_cast<uintptr_t>(message.data) % kAlignment == 0;
  if (message.may_be_kept && is_aligned && header.bytes >= kKeptBytesMin) {
    slot.kept = message.data;
    arrived(slot, message.bytes.data());
    return true;
  }
  std::byte* copy = slot_of(receive_slots_, header.sequence);
  if (header.bytes > 0) std::memcpy(copy, message.bytes.data(), header.bytes);
  arrived(slot, copy);
  return false;
}

bool UcxEndpoint::fetch(Incoming& slot, const Message& message) {
  slot.state = Incoming::State::kFetching;
  const std::span into(slot_of(receive_slots_, slot.header.sequence), slot.header.bytes);
  const ucs_status_t status =
      link_->fetch(message.data, into, {.argument = &slot, .done = &on_fetched});
  if (status == UCS_OK) {
    arrived(slot, into.data());
  } else if (status != UCS_INPROGRESS) {
    broken("a fetch", status);
  }
  return true;
}

void UcxEndpoint::arrived(Incoming& slot, const std::byte* payload) {
  slot.payload = payload;
  slot.state = Incoming::State::kHere;
  ++arrived_;
}

bool UcxEndpoint::progress() {
  if (is_broken_) return false;
  const bool has_moved = link_->progress();
  if (last_of_peer_ == arrived_ && !has_answered_leaving_) {
    has_answered_leaving_ = true;
    send_word(Word::kAllHere);
  }
  send_credit_if_due();
  return has_moved;
}

// A goodbye may overtake what was sent before it: it is final once all of that is here.
Status UcxEndpoint::failure_or_end() {
  const bool has_left = health().has_left(info().peer_rank);
  if (!has_left && !is_broken_ && !health().failed()) return Status::ok();
  while (progress()) {
  }
  if (incoming(given_ + 1).state == Incoming::State::kHere) return Status::ok();
  if (has_left && !is_broken_ && !health().failed() && last_of_peer_ != arrived_) {
    const Nanoseconds now = SteadyClock::instance().now();
    if (!left_at_.has_value()) left_at_ = now;
    if (now - *left_at_ < kLeftGrace) return Status::ok();
  }
  return failure_or_left();
}

Result<bool> UcxEndpoint::may_send() {
  if (health().failed()) return health().failure();
  const auto has_room = [this] {
    return acquired_ - released_by_peer_ < info().slots.count &&
           !outgoing(acquired_ + 1).is_under_way;
  };
  if (has_room()) return true;
  progress();
  if (health().failed()) return health().failure();
  if (has_room()) return true;
  RETURN_IF_ERROR(failure_or_end());
  return false;
}

Result<std::optional<SendSlot>> UcxEndpoint::try_acquire_send() {
  ASSIGN_OR_RETURN(const bool may, may_send());
  if (!may) return std::optional<SendSlot>();
  const uint64_t sequence = ++acquired_;
  return std::optional<SendSlot>(
      {std::span(slot_of(send_slots_, sequence), info().slots.payload_bytes),
       static_cast<uint32_t>(sequence % info().slots.count)});
}

Status UcxEndpoint::post_send(const SendSlot& slot, const SlotNote& note) {
  const uint64_t sequence = posted_ + 1;
  CHECK(posted_ < acquired_ && slot.index == sequence % info().slots.count);
  if (health().failed()) return health().failure();
  post(sequence, slot.payload.first(note.bytes), note);
  return Status::ok();
}

Result<bool> UcxEndpoint::try_send(std::span<const std::byte> bytes, const SlotNote& note) {
  CHECK(posted_ == acquired_ && bytes.size() == note.bytes);
  ASSIGN_OR_RETURN(const bool may, may_send());
  if (!may) return false;
  post(++acquired_, bytes, note);
  return true;
}

void UcxEndpoint::post(uint64_t sequence, std::span<const std::byte> bytes, const SlotNote& note) {
  CHECK(note.bytes <= info().slots.payload_bytes && note.bytes <= note.message_left);
  posted_ = sequence;
  send(outgoing(sequence),
       slot_header({.epoch = info().epoch, .sequence = sequence, .released = released_}, note),
       bytes);
}

void UcxEndpoint::send(Outgoing& outgoing, const SlotHeader& header,
                       std::span<const std::byte> bytes) {
  if (is_broken_) return;  // it has a verdict soon
  encode_slot_header(header, outgoing.header);
  released_told_ = header.released;
  // It may be done before the call returns, but then UCX does not call back.
  const ucs_status_t status =
      link_->send(outgoing.header, bytes, {.argument = &outgoing, .done = &on_sent});
  if (status == UCS_INPROGRESS) {
    outgoing.is_under_way = true;
    ++under_way_;
  } else if (status != UCS_OK) {
    broken("a send", status);
  }
}

void UcxEndpoint::send_word(Word word) {
  send(words_[static_cast<size_t>(word)],
       credit_header({.epoch = info().epoch, .sequence = posted_, .released = released_},
                     static_cast<uint32_t>(word)),
       {});
}

// Slots that we send carry the count too; a message of its own is for one-sided traffic.
void UcxEndpoint::send_credit_if_due() {
  if (released_ - released_told_ < (info().slots.count + 1) / 2) return;
  // Else with the next progress.
  if (!words_[static_cast<size_t>(Word::kCredit)].is_under_way) send_word(Word::kCredit);
}

Result<bool> UcxEndpoint::poll_sends() {
  if (health().failed()) return health().failure();
  if (under_way_ == 0) return true;
  progress();
  if (health().failed()) return health().failure();
  if (under_way_ == 0) return true;
  RETURN_IF_ERROR(failure_or_end());
  return false;
}

Result<std::optional<ReceivedSlot>> UcxEndpoint::poll_receive() {
  if (health().failed()) return health().failure();
  if (given_ - released_ >= info().slots.count) return std::optional<ReceivedSlot>();
  Incoming& slot = incoming(given_ + 1);
  if (slot.state != Incoming::State::kHere) {
    progress();
    if (health().failed()) return health().failure();
  }
  if (slot.state != Incoming::State::kHere) {
    RETURN_IF_ERROR(failure_or_end());
    return std::optional<ReceivedSlot>();
  }
  const uint64_t sequence = ++given_;
  return std::optional<ReceivedSlot>({std::span(slot.payload, slot.header.bytes),
                                      note_of(slot.header),
                                      static_cast<uint32_t>(sequence % info().slots.count)});
}

Status UcxEndpoint::release_receive(const ReceivedSlot& slot) {
  CHECK(released_ < given_ && slot.index == (released_ + 1) % info().slots.count);
  Incoming& held = incoming(++released_);
  if (held.kept != nullptr) link_->release(std::exchange(held.kept, nullptr));
  held.state = Incoming::State::kFree;
  if (health().failed()) return health().failure();
  send_credit_if_due();
  return Status::ok();
}

// Armed first: UCX says so when there is something to be done before a sleep.
void UcxEndpoint::wait(const Deadline& deadline) {
  if (health().failed()) return;
  if (!is_broken_ && (progress() || !link_->arm())) return;
  wake_->sleep(is_broken_ ? -1 : link_->event_fd(), POLLIN, deadline.at_most(kSleepMax));
}

}  // namespace shoal::fabric

#include "fabric/tcp/tcp_endpoint.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "fabric/link/socket_errors.h"
#include "fabric/link/stream.h"

namespace shoal::fabric {
namespace {

// Pieces handed to one call of sendmsg: two of each slot that does not lie in its buffer.
constexpr size_t kPartsMax = 32;

// How long a closing endpoint waits for what it has sent to be acknowledged.
constexpr Nanoseconds kLinger = std::chrono::milliseconds(200);

std::span<std::byte, kSlotHeaderBytes> header_of(std::byte* buffer) {
  return std::span<std::byte, kSlotHeaderBytes>(buffer, kSlotHeaderBytes);
}

}  // namespace

Result<std::unique_ptr<TcpEndpoint>> TcpEndpoint::create(EndpointInfo info, UniqueFd socket,
                                                         GroupHealth& health) {
  RETURN_IF_ERROR(set_non_blocking(socket.get()));
  ASSIGN_OR_RETURN(auto wake, WakeEvent::create(health));
  return std::unique_ptr<TcpEndpoint>(
      new TcpEndpoint(std::move(info), std::move(socket), std::move(wake), health));
}

TcpEndpoint::TcpEndpoint(EndpointInfo info, UniqueFd socket, std::unique_ptr<WakeEvent> wake,
                         GroupHealth& health)
    : Endpoint(std::move(info), health), socket_(std::move(socket)), wake_(std::move(wake)) {
  const uint32_t count = this->info().slots.count;
  for (uint32_t i = 0; i < count; ++i) {
    send_buffers_.push_back(std::make_unique<std::byte[]>(buffer_bytes()));
  }
  for (uint32_t i = 0; i < count + 1; ++i) {
    receive_buffers_.push_back(std::make_unique<std::byte[]>(buffer_bytes()));
  }
  outgoing_.resize(count);
}

TcpEndpoint::~TcpEndpoint() {
  if (!is_closed_ && !health().failed()) drain_before_close();
}

// A close with unread bytes resets the connection and may destroy what the peer has not read yet,
// so our direction is closed first, and theirs is read until ours is acknowledged.
void TcpEndpoint::drain_before_close() {
  const Deadline deadline = Deadline::after(kLinger);
  while (sent_ < posted_ && !is_closed_ && !deadline.expired()) {
    if (!flush().is_ok()) return;
    if (sent_ < posted_) wait(deadline);
  }
  shutdown(socket_.get(), SHUT_WR);
  std::array<std::byte, 4096> ignored;
  while (!deadline.expired()) {
    const ssize_t done = recv(socket_.get(), ignored.data(), ignored.size(), 0);
    if (done > 0) continue;
    if (done == 0 || !is_would_block(errno)) return;
    int unsent = 0;
    if (ioctl(socket_.get(), SIOCOUTQ, &unsent) != 0 || unsent == 0) return;
    pollfd entry{.fd = socket_.get(), .events = POLLIN, .revents = 0};
    poll(&entry, 1, 1);
  }
}

// The data connection closed. Why, the monitor knows better: it has a verdict soon.
Status TcpEndpoint::closed(std::string_view how) {
  is_closed_ = true;
  health().suspect(info().peer_rank,
                   "over " + info().link + " closed its data connection: " + std::string(how));
  return Status::ok();
}

// A goodbye may overtake what was sent before it: only after the end of the stream is it final.
Status TcpEndpoint::failure_or_end() {
  return is_closed_ || health().failed() ? failure_or_left() : Status::ok();
}

void TcpEndpoint::advance_sent(size_t bytes) {
  while (bytes > 0) {
    // A credit header goes only between slots.
    if (credit_left_ > 0 && sent_of_next_ == 0) {
      const size_t part = std::min(bytes, credit_left_);
      credit_left_ -= part;
      bytes -= part;
      continue;
    }
    const size_t whole = outgoing_[(sent_ + 1) % info().slots.count].bytes;
    const size_t part = std::min(bytes, whole - sent_of_next_);
    sent_of_next_ += part;
    bytes -= part;
    if (sent_of_next_ == whole) {
      ++sent_;
      sent_of_next_ = 0;
    }
  }
}

namespace {

// What goes into one call of sendmsg.
class Parts {
 public:
  bool has_room_for_slot() const { return count_ + 2 <= parts_.size(); }
  void add(const std::byte* data, size_t bytes) {
    if (bytes == 0) return;
    // Joined with the part before where they touch.
    if (count_ > 0 && end_of_last() == data) {
      parts_[count_ - 1].iov_len += bytes;
    } else {
      parts_[count_++] = {.iov_base = const_cast<std::byte*>(data), .iov_len = bytes};
    }
  }
  // Header and payload from byte `from` on.
  struct Slot {
    std::span<const std::byte> header;
    std::span<const std::byte> payload;
    size_t from = 0;
  };
  void add_slot(const Slot& slot) {
    const size_t of_header = std::min(slot.from, slot.header.size());
    add(slot.header.data() + of_header, slot.header.size() - of_header);
    const size_t of_payload = slot.from - of_header;
    add(slot.payload.data() + of_payload, slot.payload.size() - of_payload);
  }
  ssize_t send(int socket) {
    msghdr message{};
    message.msg_iov = parts_.data();
    message.msg_iovlen = count_;
    return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  }

 private:
  const std::byte* end_of_last() const {
    const iovec& last = parts_[count_ - 1];
    return static_cast<const std::byte*>(last.iov_base) + last.iov_len;
  }
  std::array<iovec, kPartsMax> parts_;
  size_t count_ = 0;
};

}  // namespace

// Sends what the socket takes: a begun slot, a credit header, then whole slots. Nothing after a
// failure: callers take their memory back.
Status TcpEndpoint::flush() {
  while (!is_closed_ && !health().failed() && (sent_ < posted_ || credit_left_ > 0)) {
    Parts parts;
    uint64_t next = sent_ + 1;
    const auto add_next = [&](size_t from) {
      const Outgoing& slot = outgoing_[next % info().slots.count];
      parts.add_slot({.header = header_of(send_buffer(next)),
                      .payload = {slot.payload, slot.bytes - kSlotHeaderBytes},
                      .from = from});
      ++next;
    };
    // With a begun slot and a credit waiting, the credit comes right after the slot.
    const bool credit_is_next = sent_of_next_ > 0 && credit_left_ > 0;
    if (sent_of_next_ > 0) {
      add_next(sent_of_next_);
    } else {
      parts.add(credit_.data() + (kSlotHeaderBytes - credit_left_), credit_left_);
    }
    while (next <= posted_ && parts.has_room_for_slot() && !credit_is_next) add_next(0);
    const ssize_t done = parts.send(socket_.get());
    if (done < 0 && is_would_block(errno)) return Status::ok();
    if (done < 0) return closed(std::generic_category().message(errno));
    advance_sent(static_cast<size_t>(done));
  }
  return Status::ok();
}

// Whether there is a credit and a free buffer for slot acquired_ + 1.
Result<bool> TcpEndpoint::may_send() {
  if (health().failed()) return health().failure();
  const uint32_t count = info().slots.count;
  const auto has_room = [&] {
    return acquired_ - released_by_peer_ < count && acquired_ - sent_ < count;
  };
  if (has_room()) return true;
  RETURN_IF_ERROR(flush());
  RETURN_IF_ERROR(read_some());
  if (has_room()) return true;
  RETURN_IF_ERROR(failure_or_end());
  return false;
}

Result<std::optional<SendSlot>> TcpEndpoint::try_acquire_send() {
  ASSIGN_OR_RETURN(const bool may, may_send());
  if (!may) return std::optional<SendSlot>();
  const uint64_t sequence = ++acquired_;
  return std::optional<SendSlot>(
      {std::span(send_buffer(sequence) + kSlotHeaderBytes, info().slots.payload_bytes),
       static_cast<uint32_t>(sequence % info().slots.count)});
}

Status TcpEndpoint::post_send(const SendSlot& slot, const SlotNote& note) {
  const uint64_t sequence = posted_ + 1;
  CHECK(posted_ < acquired_ && slot.index == sequence % info().slots.count);
  if (health().failed()) return health().failure();
  post(sequence, slot.payload.data(), note);
  return flush();
}

Result<bool> TcpEndpoint::try_send(std::span<const std::byte> bytes, const SlotNote& note) {
  CHECK(posted_ == acquired_ && bytes.size() == note.bytes);
  ASSIGN_OR_RETURN(const bool may, may_send());
  if (!may) return false;
  post(++acquired_, bytes.data(), note);
  RETURN_IF_ERROR(flush());
  return true;
}

void TcpEndpoint::post(uint64_t sequence, const std::byte* payload, const SlotNote& note) {
  CHECK(note.bytes <= info().slots.payload_bytes && note.bytes <= note.message_left);
  const SlotHeader header =
      slot_header({.epoch = info().epoch, .sequence = sequence, .released = released_}, note);
  encode_slot_header(header, header_of(send_buffer(sequence)));
  outgoing_[sequence % info().slots.count] = {
      .bytes = static_cast<uint32_t>(kSlotHeaderBytes + note.bytes), .payload = payload};
  posted_ = sequence;
  released_told_ = released_;
}

Result<bool> TcpEndpoint::poll_sends() {
  if (health().failed()) return health().failure();
  RETURN_IF_ERROR(flush());
  if (sent_ == posted_) return true;
  // The peer may be unable to read before we read what it sends.
  RETURN_IF_ERROR(read_some());
  RETURN_IF_ERROR(failure_or_end());
  return false;
}

Status TcpEndpoint::take_header(const SlotHeader& header) {
  const bool is_credit = (header.flags & kFlagCredit) != 0;
  // A credit header belongs to the last slot that came.
  const SlotExpectation expected{.epoch = info().epoch,
                                 .sequence = is_credit ? arrived_ : arrived_ + 1,
                                 .payload_bytes = is_credit ? 0 : info().slots.payload_bytes};
  if (const auto fault = find_slot_fault(header, expected); fault.has_value()) return fail(*fault);
  if (header.released > posted_) return fail("sent an impossible count of released slots");
  // A slot that was posted before a credit header and sent after it carries an older count.
  released_by_peer_ = std::max(released_by_peer_, header.released);
  if (!is_credit && arrived_ - released_ >= info().slots.count) {
    return fail("sent a slot without a credit");
  }
  return Status::ok();
}

// Cuts what is in the current buffer into frames. What lies behind a frame belongs to the next one
// and moves to its buffer; that is a copy of small frames only, since a whole slot fills a buffer.
Status TcpEndpoint::take_frames() {
  while (filled_ >= kSlotHeaderBytes) {
    std::byte* buffer = receive_buffer(arrived_ + 1);
    const SlotHeader header = decode_slot_header(header_of(buffer));
    RETURN_IF_ERROR(take_header(header));
    const size_t frame = kSlotHeaderBytes + header.bytes;
    if (filled_ < frame) return Status::ok();
    const size_t behind = filled_ - frame;
    if ((header.flags & kFlagCredit) != 0) {
      std::memmove(buffer, buffer + frame, behind);
    } else {
      ++arrived_;
      // Without a free slot only a credit header may follow, and the spare buffer takes it.
      if (behind > 0) std::memcpy(receive_buffer(arrived_ + 1), buffer + frame, behind);
    }
    filled_ = behind;
  }
  return Status::ok();
}

Status TcpEndpoint::read_some() {
  // The buffer of slot arrived_ + 1 is free: at most `count` of count + 1 buffers are held.
  while (!is_closed_ && arrived_ - released_ <= info().slots.count) {
    std::byte* buffer = receive_buffer(arrived_ + 1);
    const size_t room = buffer_bytes() - filled_;
    const ssize_t done = recv(socket_.get(), buffer + filled_, room, MSG_DONTWAIT);
    if (done < 0 && is_would_block(errno)) return Status::ok();
    if (done < 0) return closed(std::generic_category().message(errno));
    if (done == 0) {
      return closed(filled_ > 0 ? "in the middle of a slot" : "end of stream");
    }
    filled_ += static_cast<size_t>(done);
    RETURN_IF_ERROR(take_frames());
    // A short read: the socket is empty.
    if (static_cast<size_t>(done) < room) return Status::ok();
  }
  return Status::ok();
}

Result<std::optional<ReceivedSlot>> TcpEndpoint::poll_receive() {
  if (health().failed()) return health().failure();
  if (given_ == arrived_) {
    RETURN_IF_ERROR(flush());
    RETURN_IF_ERROR(read_some());
  }
  if (given_ == arrived_) {
    RETURN_IF_ERROR(failure_or_end());
    return std::optional<ReceivedSlot>();
  }
  const uint64_t sequence = ++given_;
  std::byte* buffer = receive_buffer(sequence);
  const SlotHeader header = decode_slot_header(header_of(buffer));
  return std::optional<ReceivedSlot>(
      {std::span<const std::byte>(buffer + kSlotHeaderBytes, header.bytes), note_of(header),
       static_cast<uint32_t>(sequence % (info().slots.count + 1))});
}

Status TcpEndpoint::release_receive(const ReceivedSlot& slot) {
  CHECK(released_ < given_ && slot.index == (released_ + 1) % (info().slots.count + 1));
  ++released_;
  queue_credit_if_due();
  return flush();
}

// Slots that we send carry the count too; a header of its own is for one-sided traffic.
void TcpEndpoint::queue_credit_if_due() {
  if (credit_left_ > 0 || released_ - released_told_ < (info().slots.count + 1) / 2) return;
  const SlotHeader header = credit_header({.epoch = info().epoch,
                                           .sequence = sent_of_next_ > 0 ? sent_ + 1 : sent_,
                                           .released = released_});
  encode_slot_header(header, credit_);
  credit_left_ = kSlotHeaderBytes;
  released_told_ = released_;
}

void TcpEndpoint::wait(const Deadline& deadline) {
  if (health().failed()) return;
  const bool wants_write = sent_ < posted_ || credit_left_ > 0;
  wake_->sleep(is_closed_ ? -1 : socket_.get(),
               static_cast<short>(POLLIN | (wants_write ? POLLOUT : 0)), deadline);
}

}  // namespace shoal::fabric

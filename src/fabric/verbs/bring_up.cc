#include "fabric/verbs/bring_up.h"

#include <poll.h>

#include <array>
#include <bitset>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "fabric/link/printable.h"
#include "fabric/link/stream.h"

namespace shoal::fabric {
namespace {

// Before what a step sends: zero, or the length of the reason why it failed.
constexpr uint32_t kReasonBytesMax = 512;
constexpr uint32_t kGreetingMagic = 0x47525653;  // "SVRG"
// A provider whose events get lost holds a greeting up for so long.
constexpr int kGreetingSliceMs = 20;

Status send_outcome(int socket, const Status& own, std::span<const std::byte> more,
                    const Deadline& deadline) {
  std::string reason = own.message().substr(0, kReasonBytesMax);
  if (!own.is_ok() && reason.empty()) reason = "it failed";
  ByteWriter writer;
  writer.write(static_cast<uint32_t>(reason.size()));
  writer.write_bytes(bytes_of(reason));
  if (own.is_ok()) writer.write_bytes(more);
  return write_all(socket, writer.bytes(), deadline);
}

Status receive_outcome(int socket, const Deadline& deadline) {
  ASSIGN_OR_RETURN(const uint32_t reason_bytes, read_number(socket, deadline));
  if (reason_bytes == 0) return Status::ok();
  if (reason_bytes > kReasonBytesMax) return Status::group("sent rubbish for its queue pairs");
  std::vector<std::byte> reason(reason_bytes);
  RETURN_IF_ERROR(read_all(socket, reason, deadline));
  const std::string text(reinterpret_cast<const char*>(reason.data()), reason.size());
  return Status::group("cannot use RDMA: " + printable(text));
}

// Which lanes a greeting has gone through.
class Greeting {
 public:
  Greeting(VerbsRail& rail, const RailOffer& peer) : rail_(rail), peer_(peer) {
    for (size_t i = static_cast<size_t>(rail.layout().lanes); i < come_.size(); ++i) {
      acknowledged_.set(i);
      come_.set(i);
    }
  }

  Status send() {
    for (int i = 0; i < rail_.layout().lanes; ++i) {
      const int lane = rail_.first_lane() + i;
      std::byte* from = rail_.control_message(static_cast<uint64_t>(i));
      FieldWriter fields(std::span(from, kVerbsHeaderBytes));
      fields.write(kGreetingMagic);
      fields.write(static_cast<uint32_t>(lane));
      fields.write(peer_.nonce);
      RETURN_IF_ERROR(rail_.post_send(lane, {.from = from,
                                             .bytes = rail_.message_bytes(lane, 0),
                                             .id = VerbsRail::make_id(lane, 0),
                                             .is_signaled = true}));
    }
    return Status::ok();
  }
  bool is_done() const { return acknowledged_.all() && come_.all(); }
  // Whether anything had happened.
  Result<bool> take() {
    std::array<ibv_wc, 4> completions;
    ASSIGN_OR_RETURN(const size_t sends, rail_.poll_sends(completions));
    for (size_t i = 0; i < sends; ++i) {
      RETURN_IF_ERROR(check(completions[i], "a send"));
      ASSIGN_OR_RETURN(const size_t index, index_of(completions[i]));
      acknowledged_.set(index);
    }
    ASSIGN_OR_RETURN(const size_t receives, rail_.poll_receives(completions));
    for (size_t i = 0; i < receives; ++i) {
      RETURN_IF_ERROR(check(completions[i], "a receive"));
      RETURN_IF_ERROR(take_message(completions[i]));
    }
    return sends + receives > 0;
  }

 private:
  Status check(const ibv_wc& completion, std::string_view what) const {
    if (completion.status == IBV_WC_SUCCESS) return Status::ok();
    return Status::group("the first message does not come through: " +
                         rail_.failure_text(completion, what));
  }
  Result<size_t> index_of(const ibv_wc& completion) const {
    const int index = VerbsRail::lane_of(completion.wr_id) - rail_.first_lane();
    if (index >= 0 && index < rail_.layout().lanes) return static_cast<size_t>(index);
    return Status::node("something completes that was not posted");
  }
  Status take_message(const ibv_wc& completion) {
    ASSIGN_OR_RETURN(const size_t index, index_of(completion));
    const int lane = VerbsRail::lane_of(completion.wr_id);
    const uint64_t receive = VerbsRail::number_of(completion.wr_id);
    if (receive >= rail_.layout().receives) {
      return Status::node("a receive completes that was not posted");
    }
    const auto number = static_cast<uint32_t>(receive);
    ByteReader fields(std::span<const std::byte>(rail_.receive(lane, number), kVerbsHeaderBytes));
    const bool is_ours = completion.byte_len >= kVerbsHeaderBytes && !come_.test(index) &&
                         *fields.read<uint32_t>() == kGreetingMagic &&
                         *fields.read<uint32_t>() == static_cast<uint32_t>(lane) &&
                         *fields.read<uint64_t>() == rail_.offer().nonce;
    if (!is_ours) {
      return Status::group(
          "the first message is for another connection: the cable or the address "
          "leads elsewhere");
    }
    come_.set(index);
    return rail_.post_receive(lane, number);
  }

  VerbsRail& rail_;
  const RailOffer& peer_;
  // By lane; those that the rail has not got are set.
  std::bitset<kLanesPerRailMax> acknowledged_;
  std::bitset<kLanesPerRailMax> come_;
};

}  // namespace

Status exchange_outcome(int socket, const Status& own, const Deadline& deadline) {
  const Status sent = send_outcome(socket, own, {}, deadline);
  const Status theirs = receive_outcome(socket, deadline);
  if (!own.is_ok()) return own;
  return sent.is_ok() ? theirs : sent;
}

Result<OfferBytes> exchange_offers(int socket, const Result<VerbsRailPtr>& own,
                                   const Deadline& deadline) {
  OfferBytes bytes{};
  if (own.is_ok()) bytes = encode_rail_offer((*own)->offer());
  const Status sent = send_outcome(socket, own.status(), bytes, deadline);
  Status theirs = receive_outcome(socket, deadline);
  if (theirs.is_ok()) theirs = read_all(socket, bytes, deadline);
  if (!own.is_ok()) return own.status();
  RETURN_IF_ERROR(sent);
  RETURN_IF_ERROR(theirs);
  return bytes;
}

Status greet(int socket, VerbsRail& rail, const RailOffer& peer, const Deadline& deadline) {
  Greeting greeting(rail, peer);
  RETURN_IF_ERROR(greeting.send());
  bool is_armed = false;
  while (true) {
    ASSIGN_OR_RETURN(const bool has_moved, greeting.take());
    if (greeting.is_done()) return Status::ok();
    if (deadline.expired()) {
      return Status::group(
          "the first message does not come through: is the address routed, do both ends have the "
          "same MTU, does a firewall drop UDP port 4791?");
    }
    if (has_moved) continue;
    // Armed first, then looked at once more, so that nothing falls between.
    if (!is_armed) {
      RETURN_IF_ERROR(rail.arm(/*for_sends=*/true));
      is_armed = true;
      continue;
    }
    std::array<pollfd, 2> events = {{{.fd = rail.event_fd(), .events = POLLIN, .revents = 0},
                                     {.fd = socket, .events = POLLRDHUP, .revents = 0}}};
    const int happened =
        poll(events.data(), events.size(), poll_timeout_ms(deadline, kGreetingSliceMs));
    if (happened > 0 && events[1].revents != 0) {
      return Status::group("closed the connection before the first message had come through");
    }
    if (happened > 0) rail.take_events();
    is_armed = false;
  }
}

}  // namespace shoal::fabric

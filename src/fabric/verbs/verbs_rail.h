// VerbsRail: the queue pairs to one peer over one port, and the registered memory of their slots.
//
// A rail has one or two lanes, each a queue pair: small messages go through one whose receives are
// 4 KiB, whole slots through one whose receives are as large as a slot. So a provider that wants a
// SEND and its RECV equally long moves few bytes for a small message, and one way of sending fits
// all providers. A rail over a further cable between two machines has the lane of whole slots
// alone. Every receive that a peer could need for its credits is posted before it may send.
// What is sent lies in memory that all rails of a link register; receives are a rail's own.
// Both sides learn each other's queue pairs from RailOffers, over the TCP connection of the
// handshake. docs/fabric.md specifies them.
// Thread rule: one thread at a time. Borrows the table.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "fabric/endpoint.h"
#include "fabric/verbs/verbs_port.h"
#include "fabric/verbs/verbs_table.h"

namespace shoal::fabric {

struct VerbsProvider {
  const VerbsTable* table = nullptr;
  VerbsRules rules;
};

// What goes before a slot on the wire where its header is not in the immediate data; in memory that
// is sent the payload begins behind it, aligned.
inline constexpr uint32_t kVerbsHeaderBytes = 64;
// A peer that does not read gets at most two messages that carry nothing but credits, and one per
// lane when we leave.
inline constexpr uint32_t kControlMessages = 4;
inline constexpr uint32_t kSmallBytes = 4096;
inline constexpr int kLanesPerRailMax = 2;

// How many lanes, and how long things are, for a slot class.
struct LaneLayout {
  int lanes = 1;
  uint32_t slot_bytes = 0;  // of a send slot: header, payload, filled up
  std::array<uint32_t, kLanesPerRailMax> receive_bytes{};  // of a receive, by lane
  uint32_t receives = 0;                                   // of each lane
  // Headers go into the immediate data where they can: the queue pairs lose nothing, so that a
  // message needs no number in its lane.
  bool has_short_headers = false;

  // Of the first rail of a link.
  static LaneLayout of(const SlotClass& slots, const VerbsRules& rules);
  // Of a further one: the lane of whole slots. Only where the first one has a lane of its own for
  // these.
  LaneLayout of_whole_slots() const;
  // The lane for a message of so many bytes, with the header that goes before it.
  int lane_for(uint32_t bytes) const { return bytes <= receive_bytes[0] ? 0 : lanes - 1; }
  // What a message of a full lane takes of a queue's depth: its frames, where a provider counts
  // those.
  uint32_t entries_per_message(int lane, const VerbsRules& rules) const;
  // Send slots and control messages; receives of all lanes.
  size_t send_bytes() const { return size_t{receives} * slot_bytes; }
  size_t all_receive_bytes() const {
    return size_t{receives} * (size_t{receive_bytes[0]} + receive_bytes[1]);
  }
};

// What a peer must know to reach the queue pairs.
struct RailOffer {
  static constexpr size_t kBytes = 64;

  uint32_t lanes = 1;
  uint32_t frame_bytes = 0;
  uint32_t qp_type = 0;
  uint32_t mtu = 0;  // an ibv_mtu
  uint32_t lid = 0;
  std::array<std::byte, 16> gid{};
  struct Lane {
    uint32_t qp_number = 0;
    uint32_t first_packet = 0;  // 24 bits
  };
  std::array<Lane, kLanesPerRailMax> lane{};
  uint64_t nonce = 0;  // what the first message of every lane to this side must say
};
std::array<std::byte, RailOffer::kBytes> encode_rail_offer(const RailOffer& offer);
// kGroup, as the end of a sentence about the peer, for rubbish.
Result<RailOffer> decode_rail_offer(std::span<const std::byte, RailOffer::kBytes> bytes);

// Anonymous zeroed pages that a device of these rules may register whole.
class RegistrablePages {
 public:
  // kNode: the machine has no such memory.
  static Result<std::shared_ptr<const RegistrablePages>> map(size_t bytes, const VerbsRules& rules);
  ~RegistrablePages();
  RegistrablePages(const RegistrablePages&) = delete;
  RegistrablePages& operator=(const RegistrablePages&) = delete;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  RegistrablePages(std::span<std::byte> mapped, std::span<std::byte> bytes)
      : mapped_(mapped), bytes_(bytes) {}

  std::span<std::byte> mapped_;
  std::span<std::byte> bytes_;
};

class VerbsRail;

// Destroys a rail in a thread that is given up after two seconds: drivers have been seen to hang
// there. What is given up goes on by itself.
struct CloseVerbsRail {
  void operator()(VerbsRail* rail) const;
};
using VerbsRailPtr = std::unique_ptr<VerbsRail, CloseVerbsRail>;

class VerbsRail {
 public:
  // What a rail is made for.
  struct Plan {
    VerbsProvider provider;
    LaneLayout layout;
    int first_lane = 0;
    // Of the whole link; shared, since a rail that hangs while it is destroyed outlives the others.
    std::shared_ptr<const RegistrablePages> sends{};
  };
  // The first rail of a link. kRequest: more than the device holds; kNode when the device refuses
  // something; the message names the device, what it refused and, where the limit on locked memory
  // may be the cause, that limit and what is needed.
  static Result<VerbsRailPtr> open(const VerbsProvider& provider, const VerbsPort& port,
                                   const SlotClass& slots);
  static Result<VerbsRailPtr> open(const Plan& plan, const VerbsPort& port);
  // Of a further rail, whose lane gets this number. Only where whole slots have a lane here.
  Plan plan_further(int lane) const;
  ~VerbsRail();
  VerbsRail(const VerbsRail&) = delete;
  VerbsRail& operator=(const VerbsRail&) = delete;

  const LaneLayout& layout() const { return layout_; }
  const VerbsPort& port() const { return port_; }
  int first_lane() const { return first_lane_; }
  RailOffer offer() const;
  // Brings the queue pairs up towards the peer's and posts all receives. Only then may the peer be
  // told to send. kNode: the device refused; kGroup: the offers do not fit together.
  Status connect(const RailOffer& peer);

  // Lanes are counted over the link, from first_lane() on.
  std::byte* send_slot(uint64_t sequence) const;
  std::byte* control_message(uint64_t number) const;
  std::byte* receive(int lane, uint32_t index) const;

  // Memory of the caller's that a Send may take its payload from. kNode: the device refuses.
  Status register_memory(std::span<std::byte> memory);
  void unregister_memory(std::span<std::byte> memory);
  // Whether these bytes lie in such memory.
  bool is_registered(std::span<const std::byte> bytes) const { return region_of(bytes) != nullptr; }

  // Posts a SEND of `bytes` of the rail's own memory, and behind them, if there are any, the bytes
  // of `in_place`, which are registered; of neither, if there is immediate data. `id` comes back in
  // the completion.
  struct Send {
    const std::byte* from = nullptr;
    uint32_t bytes = 0;
    std::span<const std::byte> in_place{};
    std::optional<uint32_t> immediate{};
    uint64_t id = 0;
    bool is_signaled = false;
  };
  Status post_send(int lane, const Send& send);
  // Ends all that is under way: nothing is read or written any more once this returns.
  void stop();
  Status post_receive(int lane, uint32_t index);
  uint32_t receive_bytes(int lane) const { return layout_.receive_bytes[index_of(lane)]; }
  // Bytes of a message with that much payload: all of a lane's, where lengths must match.
  uint32_t message_bytes(int lane, uint32_t payload) const {
    return provider_.rules.frame_bytes > 0 ? receive_bytes(lane) : kVerbsHeaderBytes + payload;
  }
  // Sends a lane's queue holds at once.
  uint32_t sends_max() const { return sends_max_; }

  // Completions of sends and of receives, at most completions.size(); kNode when the device fails.
  Result<size_t> poll_sends(std::span<ibv_wc> completions);
  Result<size_t> poll_receives(std::span<ibv_wc> completions);
  // The descriptor that becomes readable once a receive completes after arm(), or, if it is asked
  // for, a signaled send; take_events() before the next arm().
  int event_fd() const { return channel_->fd; }
  Status arm(bool for_sends);
  void take_events();

  // How a send or a receive failed: `what` ended with ...
  std::string failure_text(const ibv_wc& completion, std::string_view what) const;
  // The immediate data of a receive, if it has any.
  static std::optional<uint32_t> immediate_of(const ibv_wc& completion);
  // Which lane and which send or receive a completion is of.
  static int lane_of(uint64_t id) { return static_cast<int>(id >> kNumberBits); }
  static uint64_t number_of(uint64_t id) { return id & ((uint64_t{1} << kNumberBits) - 1); }
  static uint64_t make_id(int lane, uint64_t number) {
    return (static_cast<uint64_t>(lane) << kNumberBits) | number;
  }

 private:
  static constexpr int kNumberBits = 56;
  template <typename T>
  using Owned = std::unique_ptr<T, int (*)(T*)>;

  VerbsRail(const Plan& plan, VerbsPort port);
  Status open_device();
  Status register_slots();
  Status make_queues();
  Status make_pair(Owned<ibv_qp>& pair, uint32_t entries_per_message);
  Status make_ready_to_receive(size_t index, const RailOffer& peer);
  Status make_ready_to_send(size_t index);
  Status post_all_receives(size_t index);
  Status refused(std::string_view what, int error) const;
  Result<Owned<ibv_mr>> register_region(std::span<std::byte> memory) const;
  const ibv_mr* region_of(std::span<const std::byte> bytes) const;
  size_t index_of(int lane) const { return static_cast<size_t>(lane - first_lane_); }

  const VerbsProvider provider_;
  const VerbsPort port_;
  const LaneLayout layout_;
  const int first_lane_;
  uint64_t nonce_ = 0;
  uint32_t sends_max_ = 0;
  uint32_t inline_max_ = UINT32_MAX;
  std::array<uint32_t, kLanesPerRailMax> first_packet_{};

  // Torn down from the last to the first: queue pairs, regions, queues, domain, device.
  std::shared_ptr<const RegistrablePages> sends_;
  std::shared_ptr<const RegistrablePages> receives_;
  Owned<ibv_context> context_;
  Owned<ibv_pd> domain_;
  Owned<ibv_comp_channel> channel_;
  Owned<ibv_cq> send_queue_;
  Owned<ibv_cq> receive_queue_;
  Owned<ibv_mr> sends_region_;
  Owned<ibv_mr> receives_region_;
  std::vector<Owned<ibv_mr>> callers_regions_;
  std::array<Owned<ibv_qp>, kLanesPerRailMax> pairs_;
};

}  // namespace shoal::fabric

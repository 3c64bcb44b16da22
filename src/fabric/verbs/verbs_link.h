// VerbsLink: all rails to one peer, one per cable between the two machines, as one set of lanes.
//
// The first rail has the lane of small messages, every rail one of whole slots. Completions of all
// come out of one call, and one descriptor tells of all.
// Thread rule: as verbs_rail.h.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"
#include "fabric/endpoint.h"
#include "fabric/verbs/verbs_rail.h"

namespace shoal::fabric {

inline constexpr size_t kRailsMax = 4;

class VerbsLink final : public MemoryRegistrar {
 public:
  // Connected rails: one that was opened, then those opened beside it, in the order of their lanes.
  // kNode: no descriptor is left.
  static Result<std::unique_ptr<VerbsLink>> create(std::vector<VerbsRailPtr> rails);
  ~VerbsLink() override;

  const std::vector<VerbsRailPtr>& rails() const { return rails_; }
  const LaneLayout& layout() const { return rails_.front()->layout(); }
  int lanes() const { return lanes_; }
  bool has_lane(int lane) const { return lane >= 0 && lane < lanes_; }
  // From this lane on, all take whole slots.
  int first_whole_slot_lane() const { return layout().lanes - 1; }
  VerbsRail& rail_of(int lane) const;

  std::byte* send_slot(uint64_t sequence) const { return rails_.front()->send_slot(sequence); }
  std::byte* control_message(uint64_t number) const {
    return rails_.front()->control_message(number);
  }
  // Sends a lane's queue holds at once.
  uint32_t sends_max() const { return rails_.front()->sends_max(); }

  // In all rails or in none. kNode: a device refuses.
  Status register_memory(std::span<std::byte> memory) override;
  void unregister_memory(std::span<std::byte> memory) override;
  bool is_registered(std::span<const std::byte> bytes) const {
    return rails_.front()->is_registered(bytes);
  }
  // Ends all that is under way in all rails.
  void stop();

  // As a rail's.
  Result<size_t> poll_sends(std::span<ibv_wc> completions);
  Result<size_t> poll_receives(std::span<ibv_wc> completions);
  int event_fd() const { return events_.is_valid() ? events_.get() : rails_.front()->event_fd(); }
  Status arm(bool for_sends);
  void take_events();

 private:
  using PollOne = Result<size_t> (VerbsRail::*)(std::span<ibv_wc>);

  Result<size_t> poll_all(PollOne poll_one, std::span<ibv_wc> completions) const;
  VerbsLink(std::vector<VerbsRailPtr> rails, UniqueFd events);

  std::vector<VerbsRailPtr> rails_;
  int lanes_ = 0;
  UniqueFd events_;  // of all rails, where there are several
};

}  // namespace shoal::fabric

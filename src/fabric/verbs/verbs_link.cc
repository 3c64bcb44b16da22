#include "fabric/verbs/verbs_link.h"

#include <sys/epoll.h>

#include <cerrno>
#include <utility>

#include "base/check.h"

namespace shoal::fabric {

Result<std::unique_ptr<VerbsLink>> VerbsLink::create(std::vector<VerbsRailPtr> rails) {
  CHECK(!rails.empty() && rails.size() <= kRailsMax);
  UniqueFd events;
  if (rails.size() > 1) {
    events = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
    if (!events.is_valid()) return Status::from_errno("no descriptor for RDMA's events", errno);
  }
  for (const VerbsRailPtr& rail : rails) {
    epoll_event readable{.events = EPOLLIN, .data = {}};
    if (events.is_valid() &&
        epoll_ctl(events.get(), EPOLL_CTL_ADD, rail->event_fd(), &readable) != 0) {
      return Status::from_errno("waiting for RDMA's events", errno);
    }
  }
  return std::unique_ptr<VerbsLink>(new VerbsLink(std::move(rails), std::move(events)));
}

VerbsLink::VerbsLink(std::vector<VerbsRailPtr> rails, UniqueFd events)
    : rails_(std::move(rails)), events_(std::move(events)) {
  for (const VerbsRailPtr& rail : rails_) {
    CHECK(rail->first_lane() == lanes_);
    lanes_ += rail->layout().lanes;
  }
}

VerbsLink::~VerbsLink() = default;

// Every rail but the first has one lane.
VerbsRail& VerbsLink::rail_of(int lane) const {
  const int first = first_whole_slot_lane();
  return *rails_[static_cast<size_t>(lane < first ? 0 : lane - first)];
}

Status VerbsLink::register_memory(std::span<std::byte> memory) {
  for (size_t i = 0; i < rails_.size(); ++i) {
    const Status status = rails_[i]->register_memory(memory);
    if (status.is_ok()) continue;
    for (size_t done = 0; done < i; ++done) rails_[done]->unregister_memory(memory);
    return status;
  }
  return Status::ok();
}

void VerbsLink::unregister_memory(std::span<std::byte> memory) {
  for (const VerbsRailPtr& rail : rails_) rail->unregister_memory(memory);
}

void VerbsLink::stop() {
  for (const VerbsRailPtr& rail : rails_) rail->stop();
}

Result<size_t> VerbsLink::poll_all(PollOne poll_one, std::span<ibv_wc> completions) const {
  size_t count = 0;
  for (const VerbsRailPtr& rail : rails_) {
    if (count == completions.size()) break;
    ASSIGN_OR_RETURN(const size_t more, ((*rail).*poll_one)(completions.subspan(count)));
    count += more;
  }
  return count;
}

Result<size_t> VerbsLink::poll_sends(std::span<ibv_wc> completions) {
  return poll_all(&VerbsRail::poll_sends, completions);
}

Result<size_t> VerbsLink::poll_receives(std::span<ibv_wc> completions) {
  return poll_all(&VerbsRail::poll_receives, completions);
}

Status VerbsLink::arm(bool for_sends) {
  for (const VerbsRailPtr& rail : rails_) RETURN_IF_ERROR(rail->arm(for_sends));
  return Status::ok();
}

void VerbsLink::take_events() {
  for (const VerbsRailPtr& rail : rails_) rail->take_events();
}

}  // namespace shoal::fabric

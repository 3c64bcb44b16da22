// WakeEvent: ends a sleep on a link's descriptor when the group's health changes.
//
// Thread rule: sleep() by one thread at a time; the health wakes from any.
#pragma once

#include <cstdint>
#include <memory>

#include "base/clock.h"
#include "base/status.h"
#include "base/unique_fd.h"
#include "fabric/group_health.h"

namespace shoal::fabric {

class WakeEvent {
 public:
  // Borrows the health. kNode: no descriptor is left.
  static Result<std::unique_ptr<WakeEvent>> create(GroupHealth& health);
  ~WakeEvent();
  WakeEvent(const WakeEvent&) = delete;
  WakeEvent& operator=(const WakeEvent&) = delete;

  // Until one of `events` (of poll(2)) has happened at `fd`, which may be -1, the health has
  // changed, or the deadline is over. What has happened at `fd`.
  short sleep(int fd, short events, const Deadline& deadline);

 private:
  WakeEvent(UniqueFd event, GroupHealth& health);

  UniqueFd event_;
  GroupHealth& health_;
  uint64_t ticket_ = 0;
};

}  // namespace shoal::fabric

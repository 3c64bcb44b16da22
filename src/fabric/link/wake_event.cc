#include "fabric/link/wake_event.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "fabric/link/stream.h"

namespace shoal::fabric {

Result<std::unique_ptr<WakeEvent>> WakeEvent::create(GroupHealth& health) {
  UniqueFd event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event.is_valid()) return Status::from_errno("eventfd", errno);
  return std::unique_ptr<WakeEvent>(new WakeEvent(std::move(event), health));
}

WakeEvent::WakeEvent(UniqueFd event, GroupHealth& health)
    : event_(std::move(event)), health_(health) {
  ticket_ = health_.add_waker([this] {
    const uint64_t one = 1;
    (void)!write(event_.get(), &one, sizeof(one));
  });
}

WakeEvent::~WakeEvent() { health_.remove_waker(ticket_); }

short WakeEvent::sleep(int fd, short events, const Deadline& deadline) {
  std::array<pollfd, 2> entries{};
  entries[0] = {.fd = event_.get(), .events = POLLIN, .revents = 0};
  entries[1] = {.fd = fd, .events = events, .revents = 0};
  poll(entries.data(), entries.size(), poll_timeout_ms(deadline));
  uint64_t ignored = 0;
  (void)!read(event_.get(), &ignored, sizeof(ignored));
  return entries[1].revents;
}

}  // namespace shoal::fabric

#include "fabric/shm/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ctime>

namespace shoal::fabric {
namespace {

uint32_t* futex_word(std::atomic<uint32_t>& word) {
  static_assert(sizeof(std::atomic<uint32_t>) == sizeof(uint32_t));
  return reinterpret_cast<uint32_t*>(&word);
}

}  // namespace

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen, Nanoseconds at_most) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(at_most);
  timespec time{};
  time.tv_sec = seconds.count();
  time.tv_nsec = (at_most - seconds).count();
  syscall(SYS_futex, futex_word(word), FUTEX_WAIT, seen, &time, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, futex_word(word), FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

}  // namespace shoal::fabric

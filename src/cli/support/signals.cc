#include "cli/support/signals.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdint>

#include "base/check.h"

namespace shoal::cli {
namespace {

// A signal handler has no argument of ours, so its state must be reachable without one.
struct SignalState {
  std::atomic<bool> interrupted{false};
  std::atomic<bool> stop{false};
  std::atomic<int> termination{0};
  std::atomic<int> wake_fd{-1};
};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

SignalState& state() {
  static constinit SignalState instance;
  return instance;
}

void on_signal(int signal) {
  const int saved_errno = errno;
  SignalState& signals = state();
  if (signal == SIGINT) {
    signals.interrupted.store(true);
  } else if (signals.termination.exchange(signal) != 0) {
    _exit(128 + signal);
  }
  signals.stop.store(true);
  const uint64_t one = 1;
  (void)!write(signals.wake_fd.load(), &one, sizeof(one));
  errno = saved_errno;
}

void set_handler(int signal, void (*handler)(int)) {
  struct sigaction action{};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = 0;  // waiting system calls return, so that the flag is seen at once
  CHECK(sigaction(signal, &action, nullptr) == 0);
}

}  // namespace

void ignore_broken_pipes() { set_handler(SIGPIPE, SIG_IGN); }

void ignore_interrupts() { set_handler(SIGINT, SIG_IGN); }

SignalScope::SignalScope() {
  SignalState& signals = state();
  CHECK(signals.wake_fd.load() < 0);
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  CHECK(fd >= 0);
  signals.wake_fd.store(fd);
  signals.interrupted.store(false);
  signals.stop.store(false);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) set_handler(signal, on_signal);
}

SignalScope::~SignalScope() {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) set_handler(signal, SIG_DFL);
  close(state().wake_fd.exchange(-1));
}

bool SignalScope::is_interrupted() { return state().interrupted.load(); }

void SignalScope::clear_interrupt() {
  SignalState& signals = state();
  uint64_t count = 0;
  (void)!read(signals.wake_fd.load(), &count, sizeof(count));
  signals.interrupted.store(false);
  signals.stop.store(signals.termination.load() != 0);
}

int SignalScope::termination_signal() { return state().termination.load(); }

const std::atomic<bool>& SignalScope::stop_flag() { return state().stop; }

int SignalScope::wake_fd() { return state().wake_fd.load(); }

}  // namespace shoal::cli

// Signals: what Ctrl-C, SIGTERM and SIGHUP mean while the program has something to end well.
//
// Outside of a SignalScope they have their default effect: the program ends at once (local nodes
// end with it). Inside of one they are counted, and whoever works asks for them: Ctrl-C stops the
// answer, SIGTERM and SIGHUP end the program. A second SIGTERM or SIGHUP ends it at once.
// Thread rule: one scope at a time, on the main thread; the questions may be asked anywhere.
#pragma once

#include <atomic>

namespace shoal::cli {

// SIGPIPE is an error code of write(), never an end. For the life of the process.
void ignore_broken_pipes();

// A node of a local group: Ctrl-C in the terminal is rank 0's business.
void ignore_interrupts();

class SignalScope {
 public:
  SignalScope();
  ~SignalScope();
  SignalScope(const SignalScope&) = delete;
  SignalScope& operator=(const SignalScope&) = delete;

  // Ctrl-C was pressed since the last clear_interrupt().
  static bool is_interrupted();
  static void clear_interrupt();
  // SIGTERM or SIGHUP, once it came; else 0.
  static int termination_signal();
  // True from the first signal until clear_interrupt(): for what polls a flag.
  static const std::atomic<bool>& stop_flag();
  static bool should_stop() { return stop_flag().load(); }
  // Becomes readable with every signal: for what waits in poll(). -1 outside of a scope.
  static int wake_fd();
};

}  // namespace shoal::cli

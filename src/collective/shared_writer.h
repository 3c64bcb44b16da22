// SharedWriter: copies into memory that other processors read, by the cheaper of two ways.
//
// A plain store into a line that another core has read must first take the line away from that
// core. Between neighbouring cores that is cheap; between cores that share no cache it is several
// times dearer than memory itself, and then it is better to store past the caches. Which of the two
// holds depends on where the processes run, and changes when they move. So now and then a few
// copies in a row are timed, with plain stores, and the fastest says how the next ones are made: an
// interruption can make a copy look slow, nothing makes it look fast. The bytes are the same either
// way.
//
// Thread rule: one thread. Borrows the clock. flush() comes between the copies and whatever
// publishes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/clock.h"

namespace shoal::collective {

class SharedWriter {
 public:
  explicit SharedWriter(const Clock& clock = SteadyClock::instance()) : clock_(clock) {}

  // to: at least from.size() elements, at any address; fastest at a multiple of 64 bytes.
  void copy(std::span<float> to, std::span<const float> from);
  // Orders the copies before later stores.
  void flush();

  // For tests: how the next copies are made, until the next row is timed.
  void set_streaming(bool is_streaming);
  bool is_streaming() const { return is_streaming_; }

 private:
  void timed_copy(std::span<float> to, std::span<const float> from);

  const Clock& clock_;
  bool is_streaming_ = false;
  bool has_streamed_ = false;  // since the last flush
  uint32_t until_timed_ = 0;
  uint32_t timed_ = 0;  // in the row under way
  double best_ns_per_byte_ = 0;
};

}  // namespace shoal::collective

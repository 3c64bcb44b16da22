// SharedWriter: copies into memory that other processors read, by the cheaper of two ways.
//
// A plain store into a line that another core has read must first take the line away from that
// core. Between neighbouring cores that is cheap; between cores that share no cache it is several
// times dearer than memory itself, and then it is better to store past the caches. Which of the two
// holds depends on where the processes run, and changes when they move. So one copy in some is
// timed, with plain stores, and says how the next ones are made. The bytes are the same either way.
//
// Thread rule: one thread. flush() comes between the copies and whatever publishes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shoal::collective {

class SharedWriter {
 public:
  // to: at a multiple of 64 bytes, and at least from.size() elements.
  void copy(std::span<float> to, std::span<const float> from);
  // Orders the copies before later stores.
  void flush();

  // For tests: how the next copies are made until one is timed again.
  void set_streaming(bool is_streaming) { is_streaming_ = is_streaming; }
  bool is_streaming() const { return is_streaming_; }

 private:
  void timed_copy(std::span<float> to, std::span<const float> from);

  bool is_streaming_ = false;
  bool has_streamed_ = false;  // since the last flush
  uint32_t until_timed_ = 0;
};

}  // namespace shoal::collective

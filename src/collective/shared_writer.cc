#include "collective/shared_writer.h"

#include <atomic>
#include <cstring>

#include "base/check.h"
#include "base/clock.h"

namespace shoal::collective {
namespace {

// One copy in so many is timed.
constexpr uint32_t kTimedOneIn = 32;

// Plain stores that are slower than this are dearer than memory: neighbouring cores of the machines
// that we have seen take 0.04 to 0.12 ns per byte, distant ones 0.2 to 0.5.
constexpr double kPlainNanosecondsPerByteMax = 0.15;

// Copies that are too short to time say nothing.
constexpr size_t kTimedBytesMin = 1024;

using Vector = float __attribute__((vector_size(16)));
constexpr size_t kLine = 64 / sizeof(float);

// Whole lines, past the caches.
void stream_lines(float* to, const float* from, size_t lines) {
  for (size_t line = 0; line < lines; ++line, to += kLine, from += kLine) {
    Vector parts[4];
    std::memcpy(parts, from, sizeof(parts));
    for (size_t i = 0; i < 4; ++i) {
      __builtin_nontemporal_store(parts[i], reinterpret_cast<Vector*>(to) + i);
    }
  }
}

#if defined(__x86_64__)
void order_streamed_stores() { __builtin_ia32_sfence(); }
#else
void order_streamed_stores() { std::atomic_thread_fence(std::memory_order_seq_cst); }
#endif

void plain_copy(std::span<float> to, std::span<const float> from) {
  std::memcpy(to.data(), from.data(), from.size_bytes());
}

}  // namespace

void SharedWriter::copy(std::span<float> to, std::span<const float> from) {
  CHECK(to.size() >= from.size());
  if (from.empty()) return;
  if (until_timed_ == 0) return timed_copy(to, from);
  --until_timed_;
  if (!is_streaming_) return plain_copy(to, from);
  has_streamed_ = true;
  const size_t lines = from.size() / kLine;
  stream_lines(to.data(), from.data(), lines);
  const size_t rest = lines * kLine;
  if (rest < from.size()) plain_copy(to.subspan(rest), from.subspan(rest));
}

void SharedWriter::timed_copy(std::span<float> to, std::span<const float> from) {
  if (from.size_bytes() < kTimedBytesMin) return plain_copy(to, from);
  until_timed_ = kTimedOneIn;
  const Nanoseconds begin = SteadyClock::instance().now();
  plain_copy(to, from);
  const Nanoseconds taken = SteadyClock::instance().now() - begin;
  is_streaming_ = static_cast<double>(taken.count()) >
                  kPlainNanosecondsPerByteMax * static_cast<double>(from.size_bytes());
}

void SharedWriter::flush() {
  if (has_streamed_) order_streamed_stores();
  has_streamed_ = false;
}

}  // namespace shoal::collective

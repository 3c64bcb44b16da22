#include "collective/shared_writer.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/check.h"

namespace shoal::collective {
namespace {

// So many copies in a row are timed, then so many are not: the clock and the plain stores of a row
// cost little of the whole.
constexpr uint32_t kTimedInARow = 3;
constexpr uint32_t kUntimedInARow = 96;

// Plain stores that are slower than this are dearer than memory: neighbouring cores of the machines
// that we have seen take 0.04 to 0.12 ns per byte, distant ones 0.2 to 0.5.
constexpr double kPlainNanosecondsPerByteMax = 0.15;

// Copies that are too short to time say nothing.
constexpr size_t kTimedBytesMin = 1024;

using Vector = float __attribute__((vector_size(16)));
constexpr size_t kLineBytes = 64;
constexpr size_t kLine = kLineBytes / sizeof(float);

// Elements before the next line begins.
size_t elements_to_line(const float* at) {
  const size_t inside = reinterpret_cast<uintptr_t>(at) % kLineBytes;
  return inside == 0 ? 0 : (kLineBytes - inside) / sizeof(float);
}

// Whole lines, past the caches; to: where a line begins.
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

void streamed_copy(std::span<float> to, std::span<const float> from) {
  const size_t before = std::min(elements_to_line(to.data()), from.size());
  plain_copy(to, from.first(before));
  const size_t lines = (from.size() - before) / kLine;
  stream_lines(to.data() + before, from.data() + before, lines);
  const size_t done = before + lines * kLine;
  plain_copy(to.subspan(done), from.subspan(done));
}

}  // namespace

void SharedWriter::copy(std::span<float> to, std::span<const float> from) {
  CHECK(to.size() >= from.size());
  if (from.empty()) return;
  if (until_timed_ == 0) return timed_copy(to, from);
  --until_timed_;
  if (!is_streaming_) return plain_copy(to, from);
  has_streamed_ = true;
  streamed_copy(to, from);
}

void SharedWriter::timed_copy(std::span<float> to, std::span<const float> from) {
  if (from.size_bytes() < kTimedBytesMin) return plain_copy(to, from);
  const Nanoseconds begin = clock_.now();
  plain_copy(to, from);
  const Nanoseconds taken = clock_.now() - begin;
  const double ns_per_byte =
      static_cast<double>(taken.count()) / static_cast<double>(from.size_bytes());
  best_ns_per_byte_ = timed_ == 0 ? ns_per_byte : std::min(best_ns_per_byte_, ns_per_byte);
  if (++timed_ < kTimedInARow) return;
  timed_ = 0;
  until_timed_ = kUntimedInARow;
  is_streaming_ = best_ns_per_byte_ > kPlainNanosecondsPerByteMax;
}

void SharedWriter::set_streaming(bool is_streaming) {
  is_streaming_ = is_streaming;
  until_timed_ = kUntimedInARow;
}

void SharedWriter::flush() {
  if (has_streamed_) order_streamed_stores();
  has_streamed_ = false;
}

}  // namespace shoal::collective

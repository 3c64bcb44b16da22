// MeasurePlan: what is measured, and for how long. All ranks of a group have the same.
//
// Thread rule: values and pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace shoal::cli {

inline constexpr size_t kMeasuredBytesMax = size_t{256} << 20U;

inline constexpr std::array<std::string_view, 6> kOperations = {
    "round-trip", "stream", "both-ways", "all-reduce", "all-gather", "broadcast"};
// Of these, between two ranks.
inline constexpr std::array<std::string_view, 3> kMessageOperations = {"round-trip", "stream",
                                                                       "both-ways"};

struct MeasurePlan {
  std::vector<size_t> sizes{};            // bytes; empty: default ones of each operation
  std::vector<std::string> operations{};  // of kOperations; empty: all
  double seconds = 5;                     // for everything, about
  uint32_t rounds = 0;                    // not 0: of each small size, instead of `seconds`
  bool is_polling = false;                // who waits never yields or sleeps

  bool has(std::string_view operation) const;
  std::vector<size_t> message_sizes() const;
  // Whole floats.
  std::vector<size_t> collective_sizes() const;
};

// How long one measurement lasts.
struct Budget {
  Nanoseconds time{0};
  uint32_t rounds = 0;     // not 0: so many, instead; at least a batch
  uint32_t batch_min = 1;  // rounds
};

// The budget of one of `count` measurements of a size.
Budget budget_of(const MeasurePlan& plan, size_t count, size_t bytes);

// Messages in a batch of a stream, at least: enough that the time in which the link fills and runs
// empty does not count; fewer of large ones, which are many slots each.
uint32_t stream_batch_min(size_t bytes, uint32_t slot_count);

// How long a rank may have to wait for a message of so many bytes on the slowest of links, and for
// others that measure messages between them.
Nanoseconds message_patience(size_t bytes);
Nanoseconds patience_of(const MeasurePlan& plan, uint32_t slot_count);

// A piece of a measurement: so many rounds, all of which count or none.
struct Batch {
  static constexpr uint32_t kRoundsMax = 1U << 20U;
  uint32_t rounds = 0;  // 0: the measurement is over
  uint32_t is_counted = 0;
};

// Divides a measurement into batches, of which the first warm up. One rank asks, and tells the
// others.
class Pacer {
 public:
  Pacer(const Budget& budget, const Clock& clock)
      : budget_(budget), clock_(clock), started_(clock.now()) {}

  // To be called again when the batch is done.
  Batch next();

 private:
  Batch next_by_time();
  Batch next_by_rounds();

  const Budget budget_;
  const Clock& clock_;
  const Nanoseconds started_;
  uint32_t rounds_ = 0;   // of the last batch
  uint32_t counted_ = 0;  // batches
  uint64_t done_ = 0;     // rounds that counted
};

}  // namespace shoal::cli

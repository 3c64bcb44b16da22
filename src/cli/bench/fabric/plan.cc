#include "cli/bench/fabric/plan.h"

#include <algorithm>

namespace shoal::cli {
namespace {

constexpr std::array<size_t, 10> kMessageBytes = {8,
                                                  64,
                                                  512,
                                                  4096,
                                                  16384,
                                                  65536,
                                                  size_t{1} << 18U,
                                                  size_t{1} << 20U,
                                                  size_t{1} << 22U,
                                                  size_t{1} << 24U};
constexpr std::array<size_t, 9> kCollectiveBytes = {
    256, 2304, 4096, 8192, 16384, 32768, 65536, size_t{1} << 20U, size_t{16} << 20U};
constexpr uint32_t kCountedBatches = 10;
constexpr uint32_t kCountedBatchesMin = 2;
constexpr Nanoseconds kWarmUpMax = std::chrono::seconds(2);
constexpr uint32_t kRoundsMin = 20;

constexpr uint32_t kStreamMessages = 16;
constexpr uint32_t kStreamWindows = 4;  // of all slots
constexpr size_t kStreamBytes = size_t{32} << 20U;
constexpr uint32_t kLargeStreamMessages = 4;

constexpr Nanoseconds kPatience = std::chrono::seconds(60);
// Less than what soft-RoCE gives in an emulated machine.
constexpr double kSlowBytesPerSecond = 1e7;
constexpr double kSlowMessageSeconds = 5e-3;

double slow_seconds(size_t bytes) {
  return kSlowMessageSeconds + static_cast<double>(bytes) / kSlowBytesPerSecond;
}

Nanoseconds nanoseconds(double seconds) {
  return std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(seconds));
}

}  // namespace

bool MeasurePlan::has(std::string_view operation) const {
  return operations.empty() || std::ranges::find(operations, operation) != operations.end();
}

std::vector<size_t> MeasurePlan::message_sizes() const {
  return sizes.empty() ? std::vector<size_t>(kMessageBytes.begin(), kMessageBytes.end()) : sizes;
}

std::vector<size_t> MeasurePlan::collective_sizes() const {
  if (sizes.empty()) return {kCollectiveBytes.begin(), kCollectiveBytes.end()};
  std::vector<size_t> rounded;
  for (const size_t bytes : sizes) {
    const size_t whole = (bytes + sizeof(float) - 1) / sizeof(float) * sizeof(float);
    if (rounded.empty() || rounded.back() != whole) rounded.push_back(whole);
  }
  return rounded;
}

Budget budget_of(const MeasurePlan& plan, size_t count, size_t bytes) {
  if (plan.rounds == 0) {
    const double share = plan.seconds / static_cast<double>(std::max<size_t>(count, 1));
    return {.time = nanoseconds(share)};
  }
  // Large sizes get fewer rounds, so that every size takes about as long.
  if (bytes <= 65536) return {.rounds = plan.rounds};
  return {.rounds = std::max(kRoundsMin, plan.rounds / (bytes <= (size_t{1} << 20U) ? 10 : 50))};
}

uint32_t stream_batch_min(size_t bytes, uint32_t slot_count) {
  const size_t wanted = std::max(kStreamMessages, kStreamWindows * slot_count);
  const size_t fitting = kStreamBytes / std::max<size_t>(bytes, 1);
  return static_cast<uint32_t>(std::max<size_t>(kLargeStreamMessages, std::min(wanted, fitting)));
}

Nanoseconds message_patience(size_t bytes) { return kPatience + nanoseconds(slow_seconds(bytes)); }

Nanoseconds patience_of(const MeasurePlan& plan, uint32_t slot_count) {
  double longest = 0;
  for (const size_t bytes : plan.message_sizes()) {
    // The warm-up of a tenth, and what a measurement takes at least; there and back.
    const double rounds = 1.1 * budget_of(plan, 1, bytes).rounds +
                          (1 + kCountedBatchesMin) * stream_batch_min(bytes, slot_count);
    longest = std::max(longest, 2 * rounds * slow_seconds(bytes));
  }
  return kPatience + nanoseconds(plan.seconds + longest);
}

Batch Pacer::next() {
  const Batch batch = budget_.rounds > 0 ? next_by_rounds() : next_by_time();
  rounds_ = batch.rounds;
  counted_ += batch.is_counted;
  if (batch.is_counted != 0) done_ += batch.rounds;
  return batch;
}

// Warm-up batches double until they have taken a share of the time; the others are as long as the
// last one.
Batch Pacer::next_by_time() {
  if (rounds_ == 0) return {.rounds = budget_.batch_min, .is_counted = 0};
  const Nanoseconds elapsed = clock_.now() - started_;
  const Nanoseconds warm_up = std::min<Nanoseconds>(budget_.time / kCountedBatches, kWarmUpMax);
  if (counted_ == 0 && elapsed < warm_up && rounds_ < Batch::kRoundsMax) {
    return {.rounds = std::min(2 * rounds_, Batch::kRoundsMax), .is_counted = 0};
  }
  if (counted_ >= kCountedBatchesMin && elapsed >= budget_.time) return {};
  return {.rounds = rounds_, .is_counted = 1};
}

Batch Pacer::next_by_rounds() {
  const uint32_t total = std::max(budget_.rounds, budget_.batch_min);
  const uint32_t share = std::clamp(total / kCountedBatches, budget_.batch_min, Batch::kRoundsMax);
  if (rounds_ == 0) return {.rounds = share, .is_counted = 0};
  if (done_ >= total) return {};
  // What would be a short batch at the end belongs to the last one.
  const uint64_t left = total - done_;
  const uint64_t rounds = left < uint64_t{2} * share ? left : share;
  return {.rounds = static_cast<uint32_t>(std::min<uint64_t>(rounds, Batch::kRoundsMax)),
          .is_counted = 1};
}

}  // namespace shoal::cli

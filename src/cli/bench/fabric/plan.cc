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
constexpr uint32_t kRoundsMin = 20;

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
    return {.time = std::chrono::duration_cast<Nanoseconds>(std::chrono::duration<double>(share))};
  }
  // Large sizes get fewer rounds, so that every size takes about as long.
  if (bytes <= 65536) return {.rounds = plan.rounds};
  return {.rounds = std::max(kRoundsMin, plan.rounds / (bytes <= (size_t{1} << 20U) ? 10 : 50))};
}

Batch Pacer::next() {
  const Batch batch = budget_.rounds > 0 ? next_by_rounds() : next_by_time();
  rounds_ = batch.rounds;
  counted_ += batch.is_counted;
  if (batch.is_counted != 0) done_ += batch.rounds;
  return batch;
}

// Warm-up batches double until one takes a share of the time; the others are as long as that one.
Batch Pacer::next_by_time() {
  if (rounds_ == 0) return {.rounds = 1, .is_counted = 0};
  const Nanoseconds elapsed = clock_.now() - started_;
  if (counted_ == 0 && elapsed < budget_.time / kCountedBatches && rounds_ < Batch::kRoundsMax) {
    return {.rounds = rounds_ * 2, .is_counted = 0};
  }
  if (counted_ >= kCountedBatchesMin && elapsed >= budget_.time) return {};
  return {.rounds = rounds_, .is_counted = 1};
}

Batch Pacer::next_by_rounds() {
  const uint32_t share =
      std::max(1U, std::min(Batch::kRoundsMax, budget_.rounds / kCountedBatches));
  if (rounds_ == 0) return {.rounds = share, .is_counted = 0};
  if (done_ >= budget_.rounds) return {};
  const uint64_t left = budget_.rounds - done_;
  return {.rounds = static_cast<uint32_t>(std::min<uint64_t>(share, left)), .is_counted = 1};
}

}  // namespace shoal::cli

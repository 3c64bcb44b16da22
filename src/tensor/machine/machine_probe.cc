#include "tensor/machine/machine_probe.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "tensor/aligned_buffer.h"
#include "tensor/cpu/kernels.h"

namespace shoal::tensor {
namespace {

constexpr int kPasses = 5;

double seconds_since(Nanoseconds begin) {
  return std::chrono::duration<double>(SteadyClock::instance().now() - begin).count();
}

// The best rate of several passes of fn, each `amount` of work.
template <typename Fn>
double best_rate(double amount, Fn fn) {
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const Nanoseconds begin = SteadyClock::instance().now();
    fn();
    best = std::max(best, amount / seconds_since(begin));
  }
  return best;
}

}  // namespace

Result<ReadBandwidth> measure_read_bandwidth(WorkerPool& pool, size_t bytes_per_worker) {
  const auto workers = static_cast<size_t>(pool.workers());
  const size_t bytes = bytes_per_worker / 64 * 64;
  std::vector<AlignedBuffer> buffers(workers);
  for (AlignedBuffer& buffer : buffers) {
    ASSIGN_OR_RETURN(buffer, AlignedBuffer::allocate(bytes));
  }
  std::vector<uint64_t> sums(workers * 8);  // one cache line each, so that reads are not optimized
  pool.run([&](Worker& me) {
    const auto mine = buffers[static_cast<size_t>(me.index())].bytes();
    std::fill(mine.begin(), mine.end(), std::byte{1});
  });
  ReadBandwidth result;
  result.bytes_per_second = best_rate(static_cast<double>(bytes * workers), [&] {
    pool.run([&](Worker& me) {
      const auto index = static_cast<size_t>(me.index());
      sums[index * 8] += me.kernels().read_all(buffers[index].data(), static_cast<int64_t>(bytes));
    });
  });
  return result;
}

double measure_float_peak(WorkerPool& pool) {
  constexpr int64_t kRounds = 2'000'000;
  std::vector<float> results(static_cast<size_t>(pool.workers()) * 16);
  const double amount =
      static_cast<double>(kRounds * kFloatOpsPerRound) * static_cast<double>(pool.workers());
  return best_rate(amount, [&] {
    pool.run([&](Worker& me) {
      results[static_cast<size_t>(me.index()) * 16] = me.kernels().float_rounds(kRounds);
    });
  });
}

}  // namespace shoal::tensor

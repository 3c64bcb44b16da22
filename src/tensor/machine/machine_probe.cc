#include "tensor/machine/machine_probe.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/clock.h"
#include "tensor/activations.h"
#include "tensor/aligned_buffer.h"
#include "tensor/cpu/kernels.h"
#include "tensor/quant/quantize.h"

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

// The exclusive or of all words; bytes a multiple of streams * kStep. Sixteen sums side by side
// leave the loads as the only limit, on any processor; so many streams at once, a part of the
// memory each, keep more of the prefetchers busy where pages are small.
constexpr int64_t kStep = 128;

uint64_t read_streams(const std::byte* data, int64_t bytes, int64_t streams) {
  std::array<uint64_t, kStep / 8> sums{};
  const int64_t part = bytes / streams;
  for (int64_t at = 0; at < part; at += kStep) {
    for (int64_t stream = 0; stream < streams; ++stream) {
      std::array<uint64_t, kStep / 8> words;
      std::memcpy(words.data(), data + stream * part + at, kStep);
      for (size_t i = 0; i < words.size(); ++i) sums[i] ^= words[i];
    }
  }
  uint64_t all = 0;
  for (const uint64_t sum : sums) all ^= sum;
  return all;
}

}  // namespace

Result<ReadBandwidth> measure_read_bandwidth(WorkerPool& pool, size_t bytes_per_worker) {
  const auto workers = static_cast<size_t>(pool.workers());
  constexpr std::array<int64_t, 4> kStreams = {1, 2, 4, 8};
  constexpr size_t kGrain = static_cast<size_t>(kStep * kStreams.back());
  const size_t bytes = std::max<size_t>(1, bytes_per_worker / kGrain) * kGrain;
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
  for (const int64_t streams : kStreams) {
    const double rate = best_rate(static_cast<double>(bytes * workers), [&] {
      pool.run([&](Worker& me) {
        const auto index = static_cast<size_t>(me.index());
        sums[index * 8] +=
            read_streams(buffers[index].data(), static_cast<int64_t>(bytes), streams);
      });
    });
    result.bytes_per_second = std::max(result.bytes_per_second, rate);
  }
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

namespace {

// Of each worker: half a megabyte of weights in bytes, more or less in other types.
constexpr int64_t kPeakRows = 256;
constexpr int64_t kPeakCols = 2048;
constexpr int64_t kPeakTokens = 64;
constexpr int kPeakRepeats = 8;

// Weights of small numbers, one row's worth of them repeated.
std::vector<std::byte> plain_weights(DType type, int64_t rows) {
  std::vector<float> values(static_cast<size_t>(kPeakCols));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i * 37 % 64) - 31) / 512;
  }
  const std::vector<std::byte> row = quantize_matrix(type, values, kPeakCols);
  std::vector<std::byte> all;
  all.reserve(row.size() * static_cast<size_t>(rows));
  for (int64_t i = 0; i < rows; ++i) all.insert(all.end(), row.begin(), row.end());
  return all;
}

}  // namespace

Result<double> measure_matmul_peak(WorkerPool& pool, DType type) {
  const int64_t rows = kPeakRows * pool.workers();
  const std::vector<std::byte> weights = plain_weights(type, rows);
  const MatrixView view{type, rows, kPeakCols, weights};
  ASSIGN_OR_RETURN(const PackedMatrix matrix,
                   PackedMatrix::pack(view, Shard::whole(view), pool.path()));
  ASSIGN_OR_RETURN(Activations inputs, Activations::allocate({kPeakTokens, kPeakCols}));
  RETURN_IF_ERROR(pool.reserve_scratch(
      std::max(matmul_scratch_bytes(pool.path(), kPeakCols), packing_scratch_bytes(kPeakCols))));
  const std::vector<float> x(static_cast<size_t>(kPeakTokens * kPeakCols), 0.5F);
  std::vector<float> y(static_cast<size_t>(kPeakTokens * rows));
  const InputSource source = InputSource::rows({x.data(), kPeakTokens, kPeakCols, kPeakCols});
  pool.run([&](Worker& me) { pack_activations(me, source, matrix.input_format(), inputs); });
  const auto operations = static_cast<double>(2 * rows * kPeakCols * kPeakTokens * kPeakRepeats);
  return best_rate(operations, [&] {
    pool.run([&](Worker& me) {
      for (int i = 0; i < kPeakRepeats; ++i) {
        matmul(me, matrix, inputs, {y.data(), kPeakTokens, rows, rows});
      }
    });
  });
}

}  // namespace shoal::tensor

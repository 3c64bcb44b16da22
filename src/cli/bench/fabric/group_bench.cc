#include "cli/bench/fabric/group_bench.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/bytes.h"
#include "base/elapsed.h"
#include "fabric/shm/mapped_memory.h"

namespace shoal::cli {
namespace {

constexpr uint32_t kInARow = 32;
constexpr uint32_t kLargeInARow = 8;
constexpr size_t kLargeBytes = 65536;
// Of data; a floor's memory is four times as much.
constexpr size_t kFloorBytesMax = size_t{16} << 20U;

collective::GroupOptions slots_only(size_t one_shot_bytes_max) {
  return {.one_shot_bytes_max = one_shot_bytes_max, .uses_mapped_memory = false};
}

collective::GroupOptions mapped(size_t one_shot_bytes_max) {
  return {.mapped_one_shot_bytes_max = one_shot_bytes_max,
          .crowded_one_shot_bytes_max = one_shot_bytes_max};
}

std::vector<Algorithm> algorithms_of(fabric::Fabric& fabric) {
  const size_t slot_bytes = fabric.endpoint(fabric.rank() == 0 ? 1 : 0).info().slots.payload_bytes;
  std::vector<Algorithm> algorithms = {
      {.name = "chosen", .options = {}},
      {.name = "one-shot", .options = slots_only(slot_bytes), .bytes_max = slot_bytes},
      {.name = "scatter-gather", .options = slots_only(0)}};
  if (fabric.mapped() != nullptr) {
    const size_t part_bytes = fabric.mapped()->part_bytes();
    algorithms.push_back(
        {.name = "mapped one-shot", .options = mapped(part_bytes), .bytes_max = part_bytes});
    algorithms.push_back({.name = "mapped scatter-gather", .options = mapped(0)});
  }
  return algorithms;
}

}  // namespace

GroupBench::GroupBench(fabric::Fabric& fabric, Nanoseconds patience)
    : fabric_(fabric), patience_(patience), group_(fabric), algorithms_(algorithms_of(fabric)) {}

// There is no floor of RDMA here: its peers are measured by bench/peers/rdma.py.
Status GroupBench::prepare_floor(const std::vector<size_t>& sizes) {
  size_t bytes_max = 0;
  for (const size_t bytes : sizes) {
    if (bytes <= kFloorBytesMax) bytes_max = std::max(bytes_max, bytes);
  }
  const bool has_floor = fabric_.link_name() == "shm" || fabric_.link_name() == "tcp";
  if (fabric_.size() != 2 || !has_floor || bytes_max == 0) return Status::ok();
  ASSIGN_OR_RETURN(bare_, make_bare_exchange(group_, bytes_max, deadline()));
  bare_bytes_max_ = bytes_max;
  return Status::ok();
}

// Rank 0 says what comes next.
Result<Batch> GroupBench::agree(Pacer& pacer) {
  std::array<std::byte, 2 * sizeof(uint32_t)> bytes{};
  if (fabric_.rank() == 0) {
    const Batch batch = pacer.next();
    FieldWriter writer(bytes);
    writer.write(batch.rounds);
    writer.write(batch.is_counted);
  }
  RETURN_IF_ERROR(group_.broadcast(bytes, 0, deadline()));
  ByteReader reader(bytes);
  Batch batch;
  ASSIGN_OR_RETURN(batch.rounds, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(batch.is_counted, reader.read<uint32_t>());
  if (batch.rounds > Batch::kRoundsMax) {
    return fabric_.endpoint(0).fail("asked for too many rounds");
  }
  return batch;
}

template <typename Run>
Status GroupBench::repeat(const Budget& budget, const Run& run) {
  Pacer pacer(budget, fabric_.clock());
  while (true) {
    ASSIGN_OR_RETURN(const Batch batch, agree(pacer));
    if (batch.rounds == 0) return Status::ok();
    for (uint32_t i = 0; i < batch.rounds; ++i) {
      RETURN_IF_ERROR(run(batch.is_counted != 0));
    }
  }
}

// One operation after another, without a barrier between them: a rank that entered the first one
// late would otherwise find its peer's data there already, and seem fast.
template <typename Operation>
Status GroupBench::time_row(uint32_t in_a_row, const Operation& operation, const Timings& timings) {
  RETURN_IF_ERROR(barrier());
  const Nanoseconds start = fabric_.clock().now();
  Nanoseconds last = start;
  for (uint32_t i = 0; i < in_a_row; ++i) {
    RETURN_IF_ERROR(operation(i));
    const Nanoseconds now = fabric_.clock().now();
    if (timings.single != nullptr && i > 0) timings.single->add(seconds_between(last, now));
    last = now;
  }
  if (timings.mean != nullptr) timings.mean->add(seconds_between(start, last) / in_a_row);
  return Status::ok();
}

// From ones, within the range of float32: size^n < 2^120.
uint32_t GroupBench::sums_in_a_row(size_t bytes) const {
  const auto most = static_cast<uint32_t>(120 / std::log2(static_cast<double>(fabric_.size())));
  return std::min(bytes <= kLargeBytes ? kInARow : kLargeInARow, most);
}

// The numbers stay exact as long as the group's size is a power of two: every sum multiplies by it.
template <typename Reduce>
Status GroupBench::time_sums(std::vector<float>& data, const Reduce& reduce,
                             const Timings& timings) {
  std::fill(data.begin(), data.end(), 1.0F);
  const uint32_t in_a_row = sums_in_a_row(data.size() * sizeof(float));
  RETURN_IF_ERROR(time_row(in_a_row, [&](uint32_t) { return reduce(); }, timings));
  const double expected = std::pow(fabric_.size(), in_a_row);
  if (std::abs(data.back() / expected - 1) < 1e-5) return Status::ok();
  return Status::group("an all-reduce gave a wrong sum");
}

Result<CollectiveFigures> GroupBench::all_reduce(const Algorithm& algorithm, size_t bytes,
                                                 const Budget& budget) {
  collective::Group group(fabric_, algorithm.options);
  std::vector<float> data(bytes / sizeof(float));
  const fabric::RegisteredMemory registered(fabric_, std::as_writable_bytes(std::span(data)));
  Samples means;
  Samples singles;
  Samples bare;
  const bool is_compared =
      bare_ != nullptr && algorithm.name == algorithms_.front().name && bytes <= bare_bytes_max_;
  // The all-reduce and the floor take turns, so that both meet the same disturbances.
  RETURN_IF_ERROR(repeat(budget, [&](bool is_counted) -> Status {
    RETURN_IF_ERROR(time_sums(
        data, [&] { return group.all_reduce(data, deadline()); },
        is_counted ? Timings{.mean = &means, .single = &singles} : Timings{}));
    if (!is_compared) return Status::ok();
    return time_sums(
        data, [&] { return bare_->all_reduce(data, deadline()); },
        is_counted ? Timings{.mean = &bare} : Timings{});
  }));
  return CollectiveFigures{.bytes = bytes,
                           .algorithm = algorithm.name,
                           .seconds = means.summary(),
                           .single = singles.summary(),
                           .bare = bare.summary()};
}

Result<CollectiveFigures> GroupBench::all_gather(size_t bytes, const Budget& budget) {
  std::vector<std::byte> all(bytes);
  const fabric::RegisteredMemory registered(fabric_, all);
  const auto ranks = static_cast<size_t>(fabric_.size());
  std::vector<size_t> parts(ranks, bytes / ranks);
  for (size_t rank = 0; rank < bytes % ranks; ++rank) ++parts[rank];
  Samples means;
  Samples singles;
  RETURN_IF_ERROR(repeat(budget, [&](bool is_counted) {
    return time_row(
        bytes <= kLargeBytes ? kInARow : kLargeInARow,
        [&](uint32_t) {
          return group_.all_gather({.all = all, .bytes_by_rank = parts}, deadline());
        },
        is_counted ? Timings{.mean = &means, .single = &singles} : Timings{});
  }));
  return CollectiveFigures{.bytes = bytes,
                           .algorithm = "chosen",
                           .seconds = means.summary(),
                           .single = singles.summary(),
                           .bare = {}};
}

Result<CollectiveFigures> GroupBench::broadcast(size_t bytes, const Budget& budget) {
  std::vector<std::byte> data(bytes);
  const fabric::RegisteredMemory registered(fabric_, data);
  const auto ranks = static_cast<uint32_t>(fabric_.size());
  // Whole turns, so that every rank is root as often as any other.
  const uint32_t turns = std::max(1U, (bytes <= kLargeBytes ? kInARow : kLargeInARow) / ranks);
  Samples means;
  RETURN_IF_ERROR(repeat(budget, [&](bool is_counted) {
    return time_row(
        turns * ranks,
        [&](uint32_t i) { return group_.broadcast(data, static_cast<int>(i % ranks), deadline()); },
        is_counted ? Timings{.mean = &means} : Timings{});
  }));
  // Single ones tell nothing: the root is done as soon as it has sent.
  return CollectiveFigures{
      .bytes = bytes, .algorithm = "chosen", .seconds = means.summary(), .single = {}, .bare = {}};
}

}  // namespace shoal::cli

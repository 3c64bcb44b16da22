#include "runtime/measure/collect.h"

#include <array>
#include <cstring>
#include <numeric>

namespace shoal::runtime {
namespace {

constexpr size_t kClockExchanges = 16;

using tensor::Worker;

// Parts of a gather on rank 0; on the others without bytes.
struct Gathered {
  std::vector<std::byte> all;
  std::vector<size_t> sizes;  // by rank

  std::span<const std::byte> part(size_t rank) const {
    const size_t begin =
        std::accumulate(sizes.begin(), sizes.begin() + static_cast<long>(rank), size_t{0});
    return std::span(all).subspan(begin, sizes[rank]);
  }
};

Result<Gathered> gather(collective::Group& group, std::span<const std::byte> mine,
                        std::vector<size_t> sizes, const Deadline& deadline) {
  Gathered gathered{{}, std::move(sizes)};
  if (group.rank() == 0) {
    gathered.all.resize(std::accumulate(gathered.sizes.begin(), gathered.sizes.end(), size_t{0}));
  }
  if (group.size() == 1) {
    gathered.all.assign(mine.begin(), mine.end());
    return gathered;
  }
  RETURN_IF_ERROR(group.gather({mine, {gathered.all, gathered.sizes}, 0}, deadline));
  return gathered;
}

std::vector<size_t> equal_sizes(const collective::Group& group, size_t bytes) {
  return std::vector<size_t>(static_cast<size_t>(group.size()), bytes);
}

Status blame(collective::Group& group, size_t rank, const Status& cause) {
  group.fabric().health().fail(static_cast<int>(rank), cause.message());
  return group.fabric().health().failure();
}

// The spans of all workers on the own clock, which starts anew; fills in the head.
std::vector<TraceSpan> take_spans(tensor::WorkerPool& pool, TraceHead* head) {
  std::vector<tensor::Recording> recordings(static_cast<size_t>(pool.workers()));
  pool.run([&](Worker& me) {
    recordings[static_cast<size_t>(me.index())] = me.clock().take_recording();
  });
  const tensor::TickScale scale = pool.tick_scale();
  std::vector<TraceSpan> spans;
  for (size_t worker = 0; worker < recordings.size(); ++worker) {
    head->dropped += recordings[worker].dropped;
    for (const tensor::Stretch& stretch : recordings[worker].stretches) {
      spans.push_back({static_cast<uint32_t>(worker), stretch.phase, stretch.stage, stretch.layer,
                       scale.time_of(stretch.begin), scale.time_of(stretch.end)});
    }
  }
  head->workers = static_cast<uint32_t>(recordings.size());
  head->spans = spans.size();
  head->machine = machine_id();
  return spans;
}

// By rank, on rank 0: how far each clock is ahead. Every rank takes part.
Result<std::vector<Nanoseconds>> measure_offsets(collective::Group& group,
                                                 const Deadline& deadline) {
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<std::array<ClockExchange, kClockExchanges>> exchanges(ranks);
  for (size_t i = 0; i < kClockExchanges; ++i) {
    RETURN_IF_ERROR(group.barrier(deadline));
    const Nanoseconds asked = SteadyClock::instance().now();
    std::array<std::byte, 1> question{};
    RETURN_IF_ERROR(group.broadcast(question, 0, deadline));
    const int64_t now = SteadyClock::instance().now().count();
    ASSIGN_OR_RETURN(const Gathered times, gather(group, std::as_bytes(std::span(&now, 1)),
                                                  equal_sizes(group, sizeof(now)), deadline));
    const Nanoseconds answered = SteadyClock::instance().now();
    for (size_t rank = 0; rank < ranks && group.rank() == 0; ++rank) {
      int64_t theirs = 0;
      std::memcpy(&theirs, times.part(rank).data(), sizeof(theirs));
      if (theirs < 0 || theirs > kTimeMax.count()) {
        return blame(group, rank, Status::group("it sent a time that no clock shows"));
      }
      exchanges[rank][i] = {asked, Nanoseconds(theirs), answered};
    }
  }
  std::vector<Nanoseconds> offsets;
  offsets.reserve(ranks);
  for (const auto& of_rank : exchanges) offsets.push_back(clock_offset(of_rank));
  return offsets;
}

}  // namespace

RankTimes take_times(tensor::WorkerPool& pool) {
  std::vector<tensor::PhaseTicks> totals(static_cast<size_t>(pool.workers()));
  pool.run([&](Worker& me) { totals[static_cast<size_t>(me.index())] = me.clock().take_totals(); });
  const tensor::TickScale scale = pool.tick_scale();
  RankTimes times;
  times.workers = static_cast<uint32_t>(totals.size());
  for (const tensor::PhaseTicks& worker : totals) {
    for (size_t stage = 0; stage < tensor::kStages; ++stage) {
      for (size_t phase = 0; phase < tensor::kPhases; ++phase) {
        times.seconds[stage][phase] += scale.seconds(worker[stage][phase]);
      }
    }
  }
  return times;
}

Result<std::vector<RankTimes>> collect_times(tensor::WorkerPool& pool, collective::Group& group,
                                             const Deadline& deadline) {
  const std::vector<std::byte> mine = encode_times(take_times(pool));
  ASSIGN_OR_RETURN(const Gathered gathered,
                   gather(group, mine, equal_sizes(group, kTimesBytes), deadline));
  std::vector<RankTimes> times;
  if (group.rank() != 0) return times;
  for (size_t rank = 0; rank < gathered.sizes.size(); ++rank) {
    const auto decoded = decode_times(gathered.part(rank));
    if (!decoded.is_ok()) return blame(group, rank, decoded.status());
    times.push_back(*decoded);
  }
  return times;
}

void start_trace(tensor::WorkerPool& pool) {
  pool.run([](Worker& me) { me.clock().record(kTraceSpansMax); });
}

Result<std::vector<RankTrace>> collect_trace(tensor::WorkerPool& pool, collective::Group& group,
                                             const Deadline& deadline) {
  TraceHead mine;
  const std::vector<TraceSpan> spans = take_spans(pool, &mine);
  ASSIGN_OR_RETURN(const std::vector<Nanoseconds> offsets, measure_offsets(group, deadline));
  ASSIGN_OR_RETURN(const Gathered heads, gather(group, encode_trace_head(mine),
                                                equal_sizes(group, kTraceHeadBytes), deadline));
  std::vector<TraceHead> by_rank;
  size_t bytes = 0;
  std::vector<size_t> sizes(static_cast<size_t>(group.size()));
  for (size_t rank = 0; rank < sizes.size() && group.rank() == 0; ++rank) {
    const auto head = decode_trace_head(heads.part(rank));
    if (!head.is_ok()) return blame(group, rank, head.status());
    by_rank.push_back(*head);
    sizes[rank] = head->spans * kTraceSpanBytes;
    bytes += sizes[rank];
    if (bytes > kTraceBytesMax) {
      return blame(group, rank, Status::group("its trace is too long to be collected"));
    }
  }
  ASSIGN_OR_RETURN(const Gathered all,
                   gather(group, encode_spans(spans), std::move(sizes), deadline));
  std::vector<RankTrace> traces;
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    auto decoded = decode_spans(all.part(rank), by_rank[rank]);
    if (!decoded.is_ok()) return blame(group, rank, decoded.status());
    RankTrace trace{std::move(*decoded), by_rank[rank].workers, by_rank[rank].dropped,
                    Nanoseconds(0)};
    if (by_rank[rank].machine == 0 || by_rank[rank].machine != mine.machine) {
      trace.clock_offset = rank == 0 ? Nanoseconds(0) : offsets[rank];
    }
    for (TraceSpan& span : trace.spans) {
      span.begin -= trace.clock_offset;
      span.end -= trace.clock_offset;
    }
    traces.push_back(std::move(trace));
  }
  return traces;
}

}  // namespace shoal::runtime

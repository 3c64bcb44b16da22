#include "cli/bench/fabric/link_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/bytes.h"
#include "cli/bench/fabric/group_bench.h"
#include "cli/bench/fabric/pair_bench.h"

namespace shoal::cli {
namespace {

// How long a wait may be and neither yield nor sleep, where the plan says so: longer than any but
// those for others' measurements.
constexpr Nanoseconds kPollFor = std::chrono::seconds(1);

const fabric::EndpointInfo& info_of(fabric::Fabric& fabric) {
  return fabric.endpoint(fabric.rank() == 0 ? 1 : 0).info();
}

class LinkBench {
 public:
  LinkBench(fabric::Fabric& fabric, const MeasurePlan& plan, const OnStep& on_step)
      : fabric_(fabric),
        plan_(plan),
        on_step_(on_step),
        patience_(patience_of(plan, info_of(fabric).slots.count)),
        group_(fabric, patience_) {}

  Result<LinkFigures> run() {
    if (plan_.is_polling) {
      fabric::SpinPolicy polling = fabric_.spin();
      polling.pause_for = kPollFor;
      polling.yield_for = Nanoseconds(0);
      fabric_.set_spin(polling);
    }
    list_steps();
    count_ = steps_.size();
    figures_.link = fabric_.link_name();
    figures_.ports = info_of(fabric_).ports;
    if (plan_.has("all-reduce")) {
      RETURN_IF_ERROR(group_.prepare_floor(plan_.collective_sizes()));
    }
    for (size_t i = 0; i < count_; ++i) {
      on_step_({.text = steps_[i].text, .done = i, .count = count_});
      RETURN_IF_ERROR(group_.barrier());
      RETURN_IF_ERROR(steps_[i].run());
    }
    RETURN_IF_ERROR(group_.barrier());
    return std::move(figures_);
  }

 private:
  struct Step {
    std::string text;
    std::function<Status()> run;
  };
  using MessageList = std::vector<MessageFigures>;
  using CollectiveList = std::vector<CollectiveFigures>;

  Budget budget(size_t bytes) const { return budget_of(plan_, count_, bytes); }

  void list_steps() {
    figures_.pairs.reserve(static_cast<size_t>(fabric_.size()) * fabric_.size());
    for (int lower = 0; lower < fabric_.size(); ++lower) {
      for (int higher = lower + 1; higher < fabric_.size(); ++higher) {
        figures_.pairs.push_back({.lower = lower, .higher = higher});
        list_pair_steps(figures_.pairs.back());
      }
    }
    for (const size_t bytes : plan_.collective_sizes()) list_collective_steps(bytes);
  }

  void list_pair_steps(PairFigures& pair) {
    for (const size_t bytes : plan_.message_sizes()) {
      add_pair_step("round-trip", pair, bytes, &pair.round_trip,
                    [=, this](PairBench& bench) { return bench.round_trip(bytes, budget(bytes)); });
      add_pair_step("stream", pair, bytes, &pair.stream, [=, this](PairBench& bench) {
        return bench.stream(bytes, /*is_both_ways=*/false, budget(bytes));
      });
      add_pair_step("both-ways", pair, bytes, &pair.both_ways, [=, this](PairBench& bench) {
        return bench.stream(bytes, /*is_both_ways=*/true, budget(bytes));
      });
    }
  }

  template <typename Measure>
  void add_pair_step(const char* operation, const PairFigures& pair, size_t bytes,
                     MessageList* list, const Measure& measure) {
    if (!plan_.has(operation)) return;
    const int lower = pair.lower;
    const int higher = pair.higher;
    steps_.push_back(
        {fmt::format("{} of {}, ranks {} and {}", operation, size_text(bytes), lower, higher),
         [=, this] { return measure_pair({lower, higher}, list, measure); }});
  }

  // The lower rank of the pair measures; rank 0 gets the figures.
  template <typename Measure>
  Status measure_pair(const std::array<int, 2>& ranks, MessageList* list, const Measure& measure) {
    const int self = fabric_.rank();
    MessageFigures figures;
    if (self == ranks[0] || self == ranks[1]) {
      PairBench bench(fabric_, self == ranks[0] ? ranks[1] : ranks[0]);
      ASSIGN_OR_RETURN(figures, measure(bench));
    }
    if (ranks[0] != 0) {
      if (self == ranks[0]) RETURN_IF_ERROR(send_figures(figures));
      if (self == 0) RETURN_IF_ERROR(receive_figures(ranks[0], &figures));
    }
    list->push_back(figures);
    return Status::ok();
  }

  static constexpr size_t kFigureBytes = 10 * sizeof(double);
  fabric::WaitPolicy wait() const {
    return {.spin = fabric_.spin(), .deadline = Deadline::after(fabric_.clock(), patience_)};
  }

  Status send_figures(const MessageFigures& figures) {
    std::array<std::byte, kFigureBytes> bytes{};
    FieldWriter writer(bytes);
    writer.write(uint64_t{figures.bytes});
    writer.write(uint64_t{figures.figure.count});
    for (const double value :
         {figures.figure.median, figures.figure.p10, figures.figure.p90, figures.figure.p99,
          figures.figure.max, figures.overall, figures.lower_cpu, figures.higher_cpu}) {
      writer.write(value);
    }
    return fabric::send_message(fabric_.endpoint(0), bytes, wait());
  }

  Status receive_figures(int from, MessageFigures* figures) {
    std::array<std::byte, kFigureBytes> bytes{};
    RETURN_IF_ERROR(fabric::receive_message_into(fabric_.endpoint(from), bytes, wait()));
    ByteReader reader(bytes);
    ASSIGN_OR_RETURN(figures->bytes, reader.read<uint64_t>());
    ASSIGN_OR_RETURN(figures->figure.count, reader.read<uint64_t>());
    Summary& figure = figures->figure;
    for (double* value : {&figure.median, &figure.p10, &figure.p90, &figure.p99, &figure.max,
                          &figures->overall, &figures->lower_cpu, &figures->higher_cpu}) {
      ASSIGN_OR_RETURN(*value, reader.read<double>());
    }
    return Status::ok();
  }

  void list_collective_steps(size_t bytes) {
    for (const Algorithm& algorithm : group_.algorithms()) {
      if (bytes > algorithm.bytes_max) continue;
      add_collective_step("all-reduce", bytes, &figures_.all_reduce, [=, this, &algorithm] {
        return group_.all_reduce(algorithm, bytes, budget(bytes));
      });
    }
    add_collective_step("all-gather", bytes, &figures_.all_gather,
                        [=, this] { return group_.all_gather(bytes, budget(bytes)); });
    add_collective_step("broadcast", bytes, &figures_.broadcast,
                        [=, this] { return group_.broadcast(bytes, budget(bytes)); });
  }

  template <typename Measure>
  void add_collective_step(const char* operation, size_t bytes, CollectiveList* list,
                           const Measure& measure) {
    if (!plan_.has(operation)) return;
    steps_.push_back({fmt::format("{} of {}", operation, size_text(bytes)), [=]() -> Status {
                        ASSIGN_OR_RETURN(CollectiveFigures figures, measure());
                        list->push_back(std::move(figures));
                        return Status::ok();
                      }});
  }

  fabric::Fabric& fabric_;
  const MeasurePlan& plan_;
  const OnStep& on_step_;
  const Nanoseconds patience_;
  GroupBench group_;
  LinkFigures figures_;
  std::vector<Step> steps_;
  size_t count_ = 0;
};

}  // namespace

Result<LinkFigures> run_link_bench(fabric::Fabric& fabric, const MeasurePlan& plan,
                                   const OnStep& on_step) {
  return LinkBench(fabric, plan, on_step).run();
}

std::string size_text(size_t bytes) {
  if (bytes >= (size_t{1} << 20U) && bytes % (size_t{1} << 20U) == 0) {
    return fmt::format("{} MiB", bytes >> 20U);
  }
  if (bytes >= 1024 && bytes % 1024 == 0) return fmt::format("{} KiB", bytes >> 10U);
  return fmt::format("{} B", bytes);
}

}  // namespace shoal::cli

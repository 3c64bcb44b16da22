// `shoal bench fabric`: latency and bandwidth between local node processes, as collectives see it.
#include <fmt/format.h>

#include <array>
#include <cmath>
#include <memory>

#include "cli/bench/bare_exchange.h"
#include "cli/bench/samples.h"
#include "cli/commands.h"
#include "cli/support/format.h"
#include "cli/support/model_setup.h"
#include "cli/support/signals.h"
#include "collective/group.h"
#include "fabric/local_launch.h"
#include "fabric/message.h"

namespace shoal::cli {
namespace {

constexpr Nanoseconds kJoinDeadline = std::chrono::seconds(30);
constexpr Nanoseconds kOperationDeadline = std::chrono::seconds(30);
constexpr std::array<size_t, 6> kPingBytes = {0, 64, 1024, 4096, 16384, 65536};
constexpr std::array<size_t, 9> kReduceBytes = {
    256, 2304, 4096, 8192, 16384, 32768, 65536, size_t{1} << 20U, size_t{16} << 20U};
// An all-reduce and the bare exchange take turns, so that both meet the same disturbances.
constexpr uint32_t kTurns = 5;
constexpr size_t kStreamBytes = size_t{16} << 20U;
constexpr size_t kStreamMessages = 8;

struct FabricBenchOptions {
  std::string link = "shm";
  int nodes = 2;
  uint32_t rounds = 2000;
  bool is_json = false;
};

struct SizedSamples {
  size_t bytes = 0;
  Samples seconds;       // all-reduce: means of several in a row
  Samples single;        // all-reduce: each of them
  Samples bare_seconds;  // all-reduce of two nodes: the floor (bare_exchange.h), as `seconds`
};

struct FabricFigures {
  std::vector<SizedSamples> ping_pong;  // one way: half of a round trip
  std::vector<SizedSamples> all_reduce;
  double stream_bytes_per_second = 0;  // one way
};

// The same program on every rank: they call the same operations in the same order.
class FabricBench {
 public:
  FabricBench(fabric::Fabric& fabric, uint32_t rounds)
      : fabric_(fabric), group_(fabric), rounds_(rounds) {}

  Result<FabricFigures> run() {
    FabricFigures figures;
    for (const size_t bytes : kPingBytes) {
      ASSIGN_OR_RETURN(SizedSamples samples, ping_pong(bytes));
      figures.ping_pong.push_back(std::move(samples));
    }
    if (fabric_.size() == 2) {
      ASSIGN_OR_RETURN(bare_, make_bare_exchange(group_, kReduceBytes.back(), deadline()));
    }
    for (const size_t bytes : kReduceBytes) {
      ASSIGN_OR_RETURN(SizedSamples samples, all_reduce(bytes));
      figures.all_reduce.push_back(std::move(samples));
    }
    ASSIGN_OR_RETURN(figures.stream_bytes_per_second, stream());
    RETURN_IF_ERROR(group_.barrier(deadline()));
    return figures;
  }

 private:
  Deadline deadline() const { return Deadline::after(fabric_.clock(), kOperationDeadline); }
  fabric::WaitPolicy wait() const { return {.spin = fabric_.spin(), .deadline = deadline()}; }
  double seconds_since(Nanoseconds start) const {
    return std::chrono::duration<double>(fabric_.clock().now() - start).count();
  }
  // Large sizes get fewer rounds, so that every size takes about as long.
  uint32_t rounds_for(size_t bytes) const {
    if (bytes <= 65536) return rounds_;
    return std::max<uint32_t>(20, bytes <= (size_t{1} << 20U) ? rounds_ / 10 : rounds_ / 50);
  }

  Result<SizedSamples> ping_pong(size_t bytes) {
    SizedSamples samples{.bytes = bytes, .seconds = {}, .single = {}, .bare_seconds = {}};
    RETURN_IF_ERROR(group_.barrier(deadline()));
    if (fabric_.rank() > 1) return samples;
    std::vector<std::byte> buffer(bytes);
    fabric::Endpoint& peer = fabric_.endpoint(1 - fabric_.rank());
    const uint32_t warm_up = rounds_for(bytes) / 10;
    for (uint32_t i = 0; i < rounds_for(bytes) + warm_up; ++i) {
      const Nanoseconds start = fabric_.clock().now();
      if (fabric_.rank() == 0) {
        RETURN_IF_ERROR(fabric::send_message(peer, buffer, wait()));
        RETURN_IF_ERROR(fabric::receive_message_into(peer, buffer, wait()));
        if (i >= warm_up) samples.seconds.add(seconds_since(start) / 2);
      } else {
        RETURN_IF_ERROR(fabric::receive_message_into(peer, buffer, wait()));
        RETURN_IF_ERROR(fabric::send_message(peer, buffer, wait()));
      }
    }
    return samples;
  }

  Result<SizedSamples> all_reduce(size_t bytes) {
    SizedSamples samples{.bytes = bytes, .seconds = {}, .single = {}, .bare_seconds = {}};
    std::vector<float> data(bytes / sizeof(float));
    const uint32_t in_a_row = std::min<uint32_t>(bytes <= 65536 ? 32 : 8, sums_max());
    const uint32_t batches = std::max(2U, rounds_for(bytes) / in_a_row / kTurns);
    for (uint32_t turn = 0; turn < kTurns; ++turn) {
      for (uint32_t i = 0; i < batches; ++i) {
        const bool counts = i > 0;  // the first batch warms up
        RETURN_IF_ERROR(time_reductions(
            data, in_a_row, [&] { return group_.all_reduce(data, deadline()); },
            counts ? Timings{&samples.seconds, &samples.single} : Timings{}));
      }
      for (uint32_t i = 0; i < batches && bare_ != nullptr; ++i) {
        RETURN_IF_ERROR(
            time_reductions(data, in_a_row, [&] { return bare_->all_reduce(data, deadline()); },
                            {.mean = i > 0 ? &samples.bare_seconds : nullptr, .single = nullptr}));
      }
    }
    return samples;
  }

  // In a row, from ones, within the range of float32: size^n < 2^120.
  uint32_t sums_max() const {
    return static_cast<uint32_t>(120 / std::log2(static_cast<double>(fabric_.size())));
  }

  // Where a batch's times go; null: nowhere.
  struct Timings {
    Samples* mean = nullptr;
    Samples* single = nullptr;
  };

  // Sums one after another, without a barrier between them: a rank that entered the first one late
  // would otherwise find its peer's data there already, and seem fast. The numbers stay exact:
  // every sum of two ranks doubles them.
  template <typename Reduce>
  Status time_reductions(std::vector<float>& data, uint32_t in_a_row, const Reduce& reduce,
                         const Timings& timings) {
    std::fill(data.begin(), data.end(), 1.0F);
    RETURN_IF_ERROR(group_.barrier(deadline()));
    const Nanoseconds start = fabric_.clock().now();
    Nanoseconds last = start;
    for (uint32_t i = 0; i < in_a_row; ++i) {
      RETURN_IF_ERROR(reduce());
      const Nanoseconds now = fabric_.clock().now();
      if (timings.single != nullptr && i > 0) {
        timings.single->add(std::chrono::duration<double>(now - last).count());
      }
      last = now;
    }
    if (timings.mean != nullptr) {
      timings.mean->add(std::chrono::duration<double>(last - start).count() / in_a_row);
    }
    const double expected = std::pow(fabric_.size(), in_a_row);
    if (std::abs(data.back() / expected - 1) < 1e-5) return Status::ok();
    return Status::group("an all-reduce gave a wrong sum");
  }

  Result<double> stream() {
    RETURN_IF_ERROR(group_.barrier(deadline()));
    double rate = 0;
    if (fabric_.rank() <= 1) {
      std::vector<std::byte> buffer(kStreamBytes);
      fabric::Endpoint& peer = fabric_.endpoint(1 - fabric_.rank());
      const Nanoseconds start = fabric_.clock().now();
      for (size_t i = 0; i < kStreamMessages; ++i) {
        RETURN_IF_ERROR(fabric_.rank() == 0 ? fabric::send_message(peer, buffer, wait())
                                            : fabric::receive_message_into(peer, buffer, wait()));
      }
      // The end is when the receiver has it all.
      std::array<std::byte, 1> done{};
      RETURN_IF_ERROR(fabric_.rank() == 0 ? fabric::receive_message_into(peer, done, wait())
                                          : fabric::send_message(peer, done, wait()));
      rate = static_cast<double>(kStreamBytes * kStreamMessages) / seconds_since(start);
    }
    return rate;
  }

  fabric::Fabric& fabric_;
  collective::Group group_;
  std::unique_ptr<BareExchange> bare_;
  uint32_t rounds_;
};

Json json_of(const std::vector<SizedSamples>& list) {
  Json json = Json::array();
  for (const SizedSamples& entry : list) {
    json.push_back({{"bytes", entry.bytes},
                    {"rounds", entry.seconds.size()},
                    {"seconds", entry.seconds.to_json()}});
    if (entry.single.size() > 0) json.back()["single_seconds"] = entry.single.to_json();
    if (entry.bare_seconds.size() > 0) {
      json.back()["bare_seconds"] = entry.bare_seconds.to_json();
    }
  }
  return json;
}

std::string text_of(const FabricBenchOptions& options, const FabricFigures& figures) {
  using enum Table::Align;
  Table table({{"operation"},
               {"bytes", kRight},
               {"p50", kRight},
               {"p99", kRight},
               {"bare p50", kRight},
               {"ratio", kRight}});
  const auto add = [&](const char* name, const std::vector<SizedSamples>& list) {
    for (const SizedSamples& entry : list) {
      const double bare = entry.bare_seconds.median();
      const Samples& each = entry.single.size() > 0 ? entry.single : entry.seconds;
      table.add_row({name, fmt::format("{}", entry.bytes), format_seconds(entry.seconds.median()),
                     format_seconds(each.quantile(0.99)), bare > 0 ? format_seconds(bare) : "",
                     bare > 0 ? fmt::format("{:.2f}", entry.seconds.median() / bare) : ""});
    }
  };
  add("one way", figures.ping_pong);
  add("all-reduce", figures.all_reduce);
  return fmt::format("{} nodes over {}\n", options.nodes, options.link) + table.to_string() +
         fmt::format("stream      {}/s\n",
                     format_bytes(static_cast<uint64_t>(figures.stream_bytes_per_second)));
}

Result<int> bench_fabric(const FabricBenchOptions& options, Console& console) {
  silence_group_log();
  fabric::LocalGroupOptions launch;
  launch.size = options.nodes;
  ASSIGN_OR_RETURN(launch.link, fabric::parse_link_kind(options.link));
  ASSIGN_OR_RETURN(const std::string executable, own_executable());
  launch.fabric.program = this_program();
  launch.child_command = {executable, "bench", "fabric-node", fmt::format("{}", options.rounds)};
  ASSIGN_OR_RETURN(const std::unique_ptr<fabric::LocalGroup> group,
                   fabric::LocalGroup::launch(std::move(launch), Deadline::after(kJoinDeadline)));
  ASSIGN_OR_RETURN(const FabricFigures figures, FabricBench(group->fabric(), options.rounds).run());
  RETURN_IF_ERROR(group->wait_for_exit(Deadline::after(kJoinDeadline)));
  if (options.is_json) {
    console.out.write(to_text({{"link", options.link},
                               {"nodes", options.nodes},
                               {"one_way", json_of(figures.ping_pong)},
                               {"all_reduce", json_of(figures.all_reduce)},
                               {"stream_bytes_per_second", figures.stream_bytes_per_second}}));
  } else {
    console.out.write(text_of(options, figures));
  }
  return 0;
}

Result<int> fabric_node(uint32_t rounds) {
  ignore_interrupts();
  silence_group_log();
  ASSIGN_OR_RETURN(const std::unique_ptr<fabric::Fabric> fabric,
                   fabric::join_local_group(UniqueFd(fabric::kJoinFd),
                                            Deadline::after(kJoinDeadline), this_program()));
  const auto figures = FabricBench(*fabric, rounds).run();
  return figures.is_ok() ? 0 : kExitFailed;
}

}  // namespace

void add_bench_fabric(Program& program, CLI::App& bench) {
  CLI::App& command = program.add_command(
      bench, {.name = "fabric",
              .description = "Measure messages and all-reduce between local node processes",
              .examples = "  shoal bench fabric\n"
                          "  shoal bench fabric --link tcp --nodes 3 --json"});
  const auto options = std::make_shared<FabricBenchOptions>();
  command.add_option("--link", options->link, "How the nodes are joined")
      ->check(CLI::IsMember({"shm", "tcp", "verbs", "ucx"}))
      ->type_name("{shm,tcp,verbs,ucx}")
      ->capture_default_str();
  command.add_option("--nodes", options->nodes, "Node processes")
      ->check(CLI::Range(2, kGroupSizeMax))
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--rounds", options->rounds, "Rounds of each small size")
      ->check(CLI::Range(20U, 1U << 24U))
      ->type_name("N")
      ->capture_default_str();
  command.add_flag("--json", options->is_json, "Print JSON");
  program.set_action(command,
                     [options, &program] { return bench_fabric(*options, program.console()); });

  CLI::App& node = program.add_command(
      bench, {.name = "fabric-node", .description = "The other process", .examples = ""});
  node.group("");
  const auto rounds = std::make_shared<uint32_t>(0);
  node.add_option("ROUNDS", *rounds, "As of rank 0")->required();
  program.set_action(node, [rounds] { return fabric_node(*rounds); });
}

}  // namespace shoal::cli

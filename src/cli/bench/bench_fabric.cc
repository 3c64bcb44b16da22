// `shoal bench fabric`: latency and bandwidth between local node processes, as collectives see it.
#include <fmt/format.h>

#include <array>
#include <memory>

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
constexpr std::array<size_t, 7> kReduceBytes = {256, 2304, 4096, 16384, 65536, 262144, 4 << 20};
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
  Samples seconds;
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
    return bytes <= 65536 ? rounds_ : std::max<uint32_t>(20, rounds_ / 20);
  }

  Result<SizedSamples> ping_pong(size_t bytes) {
    SizedSamples samples{.bytes = bytes, .seconds = {}};
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
    SizedSamples samples{.bytes = bytes, .seconds = {}};
    std::vector<float> data(bytes / sizeof(float), 1.0F);
    const uint32_t warm_up = rounds_for(bytes) / 10;
    for (uint32_t i = 0; i < rounds_for(bytes) + warm_up; ++i) {
      std::fill(data.begin(), data.end(), 1.0F);
      RETURN_IF_ERROR(group_.barrier(deadline()));
      const Nanoseconds start = fabric_.clock().now();
      RETURN_IF_ERROR(group_.all_reduce(data, deadline()));
      if (i >= warm_up) samples.seconds.add(seconds_since(start));
      if (data.back() != static_cast<float>(fabric_.size())) {
        return Status::group("all_reduce gave a wrong sum");
      }
    }
    return samples;
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
  uint32_t rounds_;
};

Json json_of(const std::vector<SizedSamples>& list) {
  Json json = Json::array();
  for (const SizedSamples& entry : list) {
    json.push_back({{"bytes", entry.bytes},
                    {"rounds", entry.seconds.size()},
                    {"seconds", entry.seconds.to_json()}});
  }
  return json;
}

std::string text_of(const FabricBenchOptions& options, const FabricFigures& figures) {
  using enum Table::Align;
  Table table({{"operation"}, {"bytes", kRight}, {"p50", kRight}, {"p99", kRight}});
  const auto add = [&](const char* name, const std::vector<SizedSamples>& list) {
    for (const SizedSamples& entry : list) {
      table.add_row({name, fmt::format("{}", entry.bytes), format_seconds(entry.seconds.median()),
                     format_seconds(entry.seconds.quantile(0.99))});
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
  launch.fabric.build = build_name();
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
                                            Deadline::after(kJoinDeadline), build_name()));
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
      ->check(CLI::IsMember({"shm", "tcp"}))
      ->type_name("{shm,tcp}")
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

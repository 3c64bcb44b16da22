// `shoal bench fabric`: what the links between local node processes give, by kind, size and
// operation.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>

#include "cli/bench/fabric/link_bench.h"
#include "cli/bench/fabric/report.h"
#include "cli/commands.h"
#include "cli/support/files.h"
#include "cli/support/model_setup.h"
#include "cli/support/progress_bar.h"
#include "cli/support/signals.h"
#include "fabric/local_launch.h"

namespace shoal::cli {
namespace {

constexpr Nanoseconds kJoinDeadline = std::chrono::seconds(30);

struct FabricBenchOptions {
  std::vector<std::string> links = {"shm", "tcp", "verbs"};
  bool has_named_links = false;  // the user has
  int nodes = 2;
  MeasurePlan plan;
  std::string plot;  // path; empty: none
  bool is_json = false;
  bool is_quiet = false;
};

// The words that make another process measure the same.
std::vector<std::string> words_of(const MeasurePlan& plan) {
  std::vector<std::string> words = {"--seconds", fmt::format("{}", plan.seconds)};
  const auto add_list = [&](const char* option, const auto& list) {
    if (list.empty()) return;
    words.emplace_back(option);
    words.push_back(fmt::format("{}", fmt::join(list, ",")));
  };
  add_list("--sizes", plan.sizes);
  add_list("--operations", plan.operations);
  if (plan.rounds > 0) {
    words.insert(words.end(), {"--rounds", fmt::format("{}", plan.rounds)});
  }
  if (plan.is_polling) words.emplace_back("--poll");
  return words;
}

Result<std::unique_ptr<fabric::LocalGroup>> launch(const FabricBenchOptions& options,
                                                   const std::string& link) {
  fabric::LocalGroupOptions launch;
  launch.size = options.nodes;
  ASSIGN_OR_RETURN(launch.link, fabric::parse_link_kind(link));
  ASSIGN_OR_RETURN(const std::string executable, own_executable());
  launch.fabric.program = this_program();
  launch.child_command = {executable, "bench", "fabric-node"};
  for (std::string& word : words_of(options.plan)) launch.child_command.push_back(std::move(word));
  return fabric::LocalGroup::launch(std::move(launch), Deadline::after(kJoinDeadline));
}

Result<LinkFigures> measure(fabric::LocalGroup& group, const FabricBenchOptions& options,
                            Console& console) {
  const std::string link(group.fabric().link_name());
  ProgressBar bar(console.err, {.label = link,
                                .is_bytes = false,
                                .is_quiet = options.is_quiet || !console.err.is_terminal()});
  const auto show = [&](const MeasureStep& step) {
    bar.set_label(fmt::format("{}: {}", link, step.text));
    bar.set_total(step.count);
    bar.update(step.done);
  };
  ASSIGN_OR_RETURN(LinkFigures figures, run_link_bench(group.fabric(), options.plan, show));
  RETURN_IF_ERROR(group.wait_for_exit(Deadline::after(kJoinDeadline)));
  return figures;
}

Status write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file ? Status::ok() : Status::from_errno("cannot write " + path, errno);
}

// What the options cannot mean together.
Status check_options(const FabricBenchOptions& options) {
  const auto is_measured = [&](std::string_view operation) { return options.plan.has(operation); };
  if (options.plot.empty() || std::ranges::any_of(kMessageOperations, is_measured)) {
    return Status::ok();
  }
  return Status::request(fmt::format("--plot draws messages; add one of {} to --operations",
                                     fmt::join(kMessageOperations, ", ")));
}

// Nothing is measured twice: sizes in their order, links in that of the command line.
void drop_repeats(FabricBenchOptions* options) {
  std::vector<size_t>& sizes = options->plan.sizes;
  std::ranges::sort(sizes);
  const auto repeated = std::ranges::unique(sizes);
  sizes.erase(repeated.begin(), repeated.end());
  std::vector<std::string> links;
  for (const std::string& link : options->links) {
    if (std::ranges::find(links, link) == links.end()) links.push_back(link);
  }
  options->links = std::move(links);
}

// Links that this machine does not have are left out, with their reason: a failure where they were
// asked for by name. One that has begun and breaks always is; the others' figures are not lost by
// either.
Result<int> bench_fabric(FabricBenchOptions options, Console& console) {
  silence_group_log();
  if (!options.plot.empty()) RETURN_IF_ERROR(check_writable(options.plot));
  drop_repeats(&options);
  FabricReport report{.nodes = options.nodes, .is_polling = options.plan.is_polling};
  for (const std::string& link : options.links) {
    const auto group = launch(options, link);
    if (!group.is_ok()) {
      report.missing.push_back({.link = link,
                                .reason = group.status().message(),
                                .is_failure = options.has_named_links});
      continue;
    }
    auto figures = measure(**group, options, console);
    if (figures.is_ok()) {
      report.links.push_back(*std::move(figures));
    } else {
      report.missing.push_back(
          {.link = link, .reason = figures.status().message(), .is_failure = true});
    }
  }
  if (report.links.empty()) {
    const MissingLink& first = report.missing.front();
    if (report.missing.size() == 1) return Status::node(first.link + ": " + first.reason);
  }
  for (const MissingLink& one : report.missing) {
    const bool is_note = !one.is_failure || report.links.empty();
    console.err.write_line(fmt::format("shoal: {}{} was not measured: {}", is_note ? "note: " : "",
                                       one.link, one.reason));
  }
  if (report.links.empty()) return Status::node("no link could be measured: see above");
  console.out.write(options.is_json ? to_text(json_of(report)) : tables_of(report));
  if (!options.plot.empty()) RETURN_IF_ERROR(write_file(options.plot, plot_of(report)));
  return std::ranges::any_of(report.missing, &MissingLink::is_failure) ? kExitFailed : 0;
}

// What fails here, rank 0 knows and tells.
Result<int> fabric_node(const MeasurePlan& plan) {
  ignore_interrupts();
  silence_group_log();
  const auto fabric = fabric::join_local_group(UniqueFd(fabric::kJoinFd),
                                               Deadline::after(kJoinDeadline), this_program());
  if (!fabric.is_ok()) return kExitFailed;
  const auto figures = run_link_bench(**fabric, plan, [](const MeasureStep&) {});
  return figures.is_ok() ? 0 : kExitFailed;
}

std::string operation_choices() { return fmt::format("{{{}}}", fmt::join(kOperations, ",")); }

void add_plan_options(CLI::App& command, MeasurePlan* plan) {
  command
      .add_option("--sizes", plan->sizes, "Bytes of messages and of collectives, such as 64,4K,1M")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(/*kb_is_1000=*/false))
      ->check(CLI::Range(size_t{1}, kMeasuredBytesMax))
      ->type_name("BYTES,...");
  command.add_option("--operations", plan->operations, "What to measure; default: all")
      ->delimiter(',')
      ->check(CLI::IsMember(std::vector<std::string>(kOperations.begin(), kOperations.end())))
      ->type_name(operation_choices());
  command.add_option("--seconds", plan->seconds, "About how long each kind of link is measured")
      ->check(CLI::Range(0.01, 3600.0))
      ->type_name("S")
      ->capture_default_str();
  command.add_option("--rounds", plan->rounds, "Rounds of each small size, however long they take")
      ->check(CLI::Range(20U, 1U << 24U))
      ->type_name("N");
  command.add_flag("--poll", plan->is_polling,
                   "Who waits polls, without ever yielding; needs a core for each node");
}

}  // namespace

void add_bench_fabric(Program& program, CLI::App& bench) {
  CLI::App& command = program.add_command(
      bench, {.name = "fabric",
              .description = "Measure messages and collectives between local node processes",
              .examples = "  shoal bench fabric\n"
                          "  shoal bench fabric --link shm,tcp --plot links.svg\n"
                          "  shoal bench fabric --link tcp --nodes 3 --sizes 64,64K --json"});
  const auto options = std::make_shared<FabricBenchOptions>();
  const CLI::Option* link =
      command
          .add_option(
              "--link", options->links,
              "How the nodes are joined; several are measured in turn; default: all but ucx")
          ->delimiter(',')
          ->check(CLI::IsMember({"shm", "tcp", "verbs", "ucx"}))
          ->type_name("{shm,tcp,verbs,ucx}");
  command.add_option("--nodes", options->nodes, "Node processes")
      ->check(CLI::Range(2, kGroupSizeMax))
      ->type_name("N")
      ->capture_default_str();
  add_plan_options(command, &options->plan);
  command.add_option("--plot", options->plot, "Draw latency and bandwidth over size, as SVG")
      ->type_name("FILE");
  command.add_flag("-q,--quiet", options->is_quiet, "No progress on standard error");
  command.add_flag("--json", options->is_json, "Print JSON");
  program.set_action(
      command,
      [options, link, &program] {
        options->has_named_links = link->count() > 0;
        return bench_fabric(*options, program.console());
      },
      [options] { return check_options(*options); });

  CLI::App& node = program.add_command(
      bench, {.name = "fabric-node", .description = "Another process", .examples = ""});
  node.group("");
  const auto plan = std::make_shared<MeasurePlan>();
  add_plan_options(node, plan.get());
  program.set_action(node, [plan] { return fabric_node(*plan); });
}

}  // namespace shoal::cli

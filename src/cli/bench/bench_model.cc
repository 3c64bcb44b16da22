// `shoal bench model MODEL`: prefill and decode speed apart, with median and spread, beside what
// the machine's memory and arithmetic allow, and where the time goes.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/bench/model_runs.h"
#include "cli/bench/model_work.h"
#include "cli/commands.h"
#include "cli/support/format.h"
#include "cli/support/machine.h"
#include "cli/support/progress_bar.h"
#include "cli/support/signals.h"

namespace shoal::cli {
namespace {

using tensor::Phase;

struct BenchOptions {
  ModelOptions model;
  RunShape shape;
  std::vector<uint32_t> depths = {0};
  uint32_t repeats = 5;
  bool is_json = false;
  Nanoseconds program_started{0};
};

// Everything that is printed.
struct Report {
  std::vector<DepthFigures> depths;
  MachineLimits limits;
  double first_token_seconds = 0;  // after the prompt was there
  double start_to_ready_seconds = 0;
};

uint64_t weight_bytes_of(LoadedModel& loaded) {
  uint64_t bytes = 0;
  for (const runtime::NodeStats& node : loaded.engine().stats().nodes) bytes += node.weight_bytes;
  return bytes;
}

// Weights, and the keys and values of an average step.
double decode_bytes(LoadedModel& loaded, const BenchOptions& options, uint32_t depth) {
  const double positions = depth + options.shape.answer_tokens / 2.0;
  return static_cast<double>(weight_bytes_of(loaded)) +
         positions * static_cast<double>(loaded.plan().kv_bytes_per_token);
}

double decode_share(LoadedModel& loaded, const BenchOptions& options, const Report& report,
                    const DepthFigures& figures) {
  return decode_bytes(loaded, options, figures.depth) * figures.decode.tokens_per_second.median() /
         report.limits.read_bytes_per_second;
}

double prefill_rate(LoadedModel& loaded, const BenchOptions& options, const DepthFigures& figures) {
  const uint32_t tokens = options.shape.prompt_tokens;
  return prefill_operations(loaded.model().config, figures.depth, tokens) / tokens *
         figures.prefill.tokens_per_second.median();
}

Json phases_json(const StageFigures& stage) {
  Json shares = Json::object();
  for (size_t phase = 0; phase < tensor::kPhases; ++phase) {
    shares[std::string(tensor::phase_name(static_cast<Phase>(phase)))] =
        stage.share(static_cast<Phase>(phase));
  }
  Json ranks = Json::array();
  for (const auto& rank : stage.phase_seconds) {
    Json seconds = Json::object();
    for (size_t phase = 0; phase < tensor::kPhases; ++phase) {
      seconds[std::string(tensor::phase_name(static_cast<Phase>(phase)))] = rank[phase];
    }
    ranks.push_back(std::move(seconds));
  }
  return {{"shares", std::move(shares)}, {"worker_seconds_by_rank", std::move(ranks)}};
}

Json stage_json(const StageFigures& stage) {
  return {{"tokens_per_second", stage.tokens_per_second.to_json()},
          {"time", phases_json(stage)},
          {"collective_operations", stage.collective_operations},
          {"collective_bytes", stage.collective_bytes}};
}

Json json_of(LoadedModel& loaded, const BenchOptions& options, const Report& report) {
  Json depths = Json::array();
  for (const DepthFigures& figures : report.depths) {
    Json prefill = stage_json(figures.prefill);
    prefill["operations_per_second"] = prefill_rate(loaded, options, figures);
    prefill["share_of_float_peak"] =
        prefill_rate(loaded, options, figures) / report.limits.float_operations_per_second;
    prefill["share_of_matmul_peak"] =
        prefill_rate(loaded, options, figures) / report.limits.matmul_operations_per_second;
    Json decode = stage_json(figures.decode);
    decode["bytes_per_token"] = decode_bytes(loaded, options, figures.depth);
    decode["share_of_read_bandwidth"] = decode_share(loaded, options, report, figures);
    depths.push_back(
        {{"depth", figures.depth}, {"prefill", std::move(prefill)}, {"decode", std::move(decode)}});
  }
  Json json = {
      {"model", loaded.model().config.display_name},
      {"processor", read_machine().cpu},
      {"prompt_tokens", options.shape.prompt_tokens},
      {"answer_tokens", options.shape.answer_tokens},
      {"repeats", options.repeats},
      {"depths", std::move(depths)},
      {"limits", to_json(report.limits)},
      {"weight_bytes", weight_bytes_of(loaded)},
      {"kv_bytes_per_token", loaded.plan().kv_bytes_per_token},
      {"start_to_ready_seconds", report.start_to_ready_seconds},
      {"start_to_first_token_seconds", report.start_to_ready_seconds + report.first_token_seconds}};
  json.update(loaded.describe_layout());
  return json;
}

std::string speeds_text(const BenchOptions& options, const Report& report) {
  using enum Table::Align;
  Table table({{"phase"},
               {"depth", kRight},
               {"tokens", kRight},
               {"median tok/s", kRight},
               {"p10", kRight},
               {"p90", kRight}});
  const auto add = [&](const char* name, uint32_t depth, uint32_t tokens, const Samples& samples) {
    table.add_row({name, fmt::format("{}", depth), fmt::format("{}", tokens),
                   fmt::format("{:.1f}", samples.median()),
                   fmt::format("{:.1f}", samples.quantile(0.1)),
                   fmt::format("{:.1f}", samples.quantile(0.9))});
  };
  for (const DepthFigures& figures : report.depths) {
    add("prefill", figures.depth, options.shape.prompt_tokens, figures.prefill.tokens_per_second);
    add("decode", figures.depth, options.shape.answer_tokens, figures.decode.tokens_per_second);
  }
  return table.to_string();
}

std::string limits_text(LoadedModel& loaded, const BenchOptions& options, const Report& report) {
  std::string text;
  const MachineLimits& limits = report.limits;
  for (const DepthFigures& figures : report.depths) {
    const std::string at = report.depths.size() == 1 && figures.depth == 0
                               ? std::string()
                               : fmt::format(" at depth {}", figures.depth);
    const double bytes = decode_bytes(loaded, options, figures.depth);
    const double rate = bytes * figures.decode.tokens_per_second.median();
    text += fmt::format(
        "decode{} reads {} a token, {}/s: {:.0f} % of the {}/s that {} thread{} can read\n", at,
        format_bytes(static_cast<uint64_t>(bytes)), format_bytes(static_cast<uint64_t>(rate)),
        100 * rate / limits.read_bytes_per_second,
        format_bytes(static_cast<uint64_t>(limits.read_bytes_per_second)), limits.threads,
        limits.threads == 1 ? "" : "s");
    const double operations = prefill_rate(loaded, options, figures);
    text += fmt::format(
        "prefill{} computes {:.1f} Gflop/s: {:.0f} % of the {:.1f} that its kernels reach in the "
        "cache, {:.0f} % of the float32 peak of {:.1f}\n",
        at, operations * 1e-9, 100 * operations / limits.matmul_operations_per_second,
        limits.matmul_operations_per_second * 1e-9,
        100 * operations / limits.float_operations_per_second,
        limits.float_operations_per_second * 1e-9);
  }
  return text;
}

// Shares of all workers' time, of the first and the last depth.
std::string phases_text(const Report& report) {
  using enum Table::Align;
  std::vector<const DepthFigures*> shown = {&report.depths.front()};
  if (report.depths.size() > 1) shown.push_back(&report.depths.back());
  std::vector<Table::Column> columns = {{"share of the time, %"}};
  for (const DepthFigures* figures : shown) {
    columns.push_back({fmt::format("prefill at {}", figures->depth), kRight});
    columns.push_back({fmt::format("decode at {}", figures->depth), kRight});
  }
  Table table(std::move(columns));
  for (size_t i = 0; i < tensor::kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    std::vector<std::string> row = {std::string(tensor::phase_name(phase))};
    for (const DepthFigures* figures : shown) {
      row.push_back(fmt::format("{:.1f}", 100 * figures->prefill.share(phase)));
      row.push_back(fmt::format("{:.1f}", 100 * figures->decode.share(phase)));
    }
    table.add_row(std::move(row));
  }
  return table.to_string();
}

std::string text_of(LoadedModel& loaded, const BenchOptions& options, const Report& report) {
  const size_t nodes = loaded.plan().ranks.size();
  std::string text =
      fmt::format("{}: {} {}, threads of each: {}, runs: {}\n", loaded.model().config.display_name,
                  nodes, nodes == 1 ? "node" : "nodes", loaded.threads(), options.repeats);
  text += fmt::format("kernels: {}\n", loaded.kernels_text());
  text += speeds_text(options, report) + limits_text(loaded, options, report);
  text += phases_text(report);
  if (nodes > 1) {
    const StageFigures& decode = report.depths.front().decode;
    text += fmt::format("collectives over {}: {} operations of {} in a decode run\n",
                        loaded.link_name(), decode.collective_operations,
                        format_bytes(decode.collective_bytes));
  }
  text += fmt::format("first token {} after the start: {} to load, {} for a prompt of {} tokens\n",
                      format_seconds(report.start_to_ready_seconds + report.first_token_seconds),
                      format_seconds(report.start_to_ready_seconds),
                      format_seconds(report.first_token_seconds), options.shape.prompt_tokens);
  return text;
}

uint32_t context_needed(const BenchOptions& options) {
  const uint32_t deepest = *std::max_element(options.depths.begin(), options.depths.end());
  return std::max(
      kContextMin,
      deepest + std::max(options.shape.prompt_tokens, options.shape.answer_tokens + 1) + 1);
}

Status check(const BenchOptions& options) {
  const uint32_t needed = context_needed(options);
  if (options.model.context == 0 || options.model.context >= needed) return Status::ok();
  return Status::request(fmt::format("--ctx {} is less than the {} tokens of a run; leave it out",
                                     options.model.context, needed));
}

Result<Report> measure(LoadedModel& loaded, const BenchOptions& options, Console& console) {
  Report report;
  report.start_to_ready_seconds =
      std::chrono::duration<double>(SteadyClock::instance().now() - options.program_started)
          .count();
  ModelRuns runs(loaded, options.shape);
  ASSIGN_OR_RETURN(report.first_token_seconds, runs.warm_up());
  ProgressBar bar(console.err, {.label = "measuring",
                                .total = options.repeats * options.depths.size(),
                                .is_bytes = false,
                                .is_quiet = options.model.is_quiet});
  uint32_t done = 0;
  for (const uint32_t depth : options.depths) {
    report.depths.emplace_back();
    report.depths.back().depth = depth;
    RETURN_IF_ERROR(runs.open(depth));
    for (uint32_t i = 0; i < options.repeats; ++i) {
      RETURN_IF_ERROR(runs.measure(&report.depths.back()));
      bar.update(++done);
    }
    RETURN_IF_ERROR(runs.close());
  }
  bar.finish();
  const auto threads = loaded.threads() * static_cast<uint32_t>(loaded.plan().ranks.size());
  // What the same kernels reach; the exact path has no packed ones to compare with.
  const auto path = tensor::kernel_path_from_name(options.model.kernels);
  ASSIGN_OR_RETURN(report.limits, measure_limits(std::min(threads, usable_cores()),
                                                 main_type(loaded.model().tensors),
                                                 path.value_or(tensor::best_kernel_path())));
  return report;
}

Result<int> bench_model(BenchOptions options, Console& console) {
  if (options.model.context == 0) {
    options.model.context = context_needed(options);
    options.model.context_option = "--depth, -p or -n";
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> loaded,
                   LoadedModel::load(options.model, console));
  const SignalScope signals;
  ASSIGN_OR_RETURN(const Report report, measure(*loaded, options, console));
  console.out.write(options.is_json ? to_text(json_of(*loaded, options, report))
                                    : text_of(*loaded, options, report));
  RETURN_IF_ERROR(loaded->close());
  return 0;
}

}  // namespace

void add_bench_model(Program& program, CLI::App& bench) {
  CLI::App& command = program.add_command(
      bench, {.name = "model",
              .description = "Measure prefill and decode speed",
              .examples = "  shoal bench model smollm2\n"
                          "  shoal bench model smollm2 --nodes 2 --link tcp\n"
                          "  shoal bench model smollm2 --depth 0,512 -n 32 --repeats 3\n"
                          "  shoal bench model smollm2 -p 128 -n 32 --repeats 3 --json"});
  const auto options = std::make_shared<BenchOptions>();
  add_model_name(command, &options->model.model);
  const auto add_number = [&](const char* name, uint32_t& value, const char* description) {
    command.add_option(name, value, description)
        ->check(CLI::Range(1U, 1U << 20U))
        ->type_name("N")
        ->capture_default_str();
  };
  add_number("-p,--prompt-tokens", options->shape.prompt_tokens, "Tokens of the prompt");
  add_number("-n,--answer-tokens", options->shape.answer_tokens, "Tokens to decode");
  command
      .add_option("--depth", options->depths,
                  "Tokens that the context holds before; several, such as 0,512,4096")
      ->delimiter(',')
      ->check(CLI::Range(0U, 1U << 22U))
      ->type_name("N,...")
      ->default_str("0");
  add_number("--repeats", options->repeats, "Measured runs, after one to warm up");
  add_layout_options(command, &options->model);
  add_compute_options(command, &options->model);
  command.add_flag("--json", options->is_json, "Print JSON");
  const auto action = [options, &program] {
    options->program_started = program.started();
    return bench_model(*options, program.console());
  };
  program.set_action(command, action, [options] { return check(*options); });
}

}  // namespace shoal::cli

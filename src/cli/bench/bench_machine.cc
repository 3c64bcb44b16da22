// `shoal bench machine`: what memory and arithmetic of this machine give at most, by threads and by
// type of weight.
#include <fmt/format.h>

#include <memory>

#include "cli/bench/model_work.h"
#include "cli/commands.h"
#include "cli/support/format.h"
#include "cli/support/machine.h"
#include "cli/support/progress_bar.h"
#include "tensor/dtype.h"
#include "tensor/kernel_path.h"
#include "tensor/machine/machine_probe.h"

namespace shoal::cli {
namespace {

struct MachineBenchOptions {
  uint32_t threads = 0;  // at most; 0: the usable cores
  std::vector<std::string> types;
  bool is_quiet = false;
  bool is_json = false;
};

struct MatmulPeak {
  tensor::DType type = tensor::DType::kF32;
  std::vector<double> operations_per_second;  // as MachineFigures::limits
};

struct MachineFigures {
  std::vector<MachineLimits> limits;  // by threads, the most last; matrices of the first type
  std::vector<MatmulPeak> peaks;
};

// 1, 2, 4, ... and the most.
std::vector<uint32_t> thread_counts(uint32_t most) {
  std::vector<uint32_t> counts;
  for (uint32_t count = 1; count < most; count *= 2) counts.push_back(count);
  counts.push_back(most);
  return counts;
}

Result<std::vector<tensor::DType>> chosen_types(const std::vector<std::string>& names) {
  std::vector<tensor::DType> types;
  for (const std::string& name : names) {
    const auto type = tensor::dtype_from_name(name);
    if (!type || !tensor::dtype_info(*type).is_supported) {
      return Status::request(fmt::format("--types {}: not a type of weights; give some of {}", name,
                                         tensor::supported_dtype_names()));
    }
    types.push_back(*type);
  }
  for (size_t i = 0; i < tensor::kSupportedTypes && names.empty(); ++i) {
    types.push_back(static_cast<tensor::DType>(i));
  }
  return types;
}

Result<MachineFigures> measure(const MachineBenchOptions& options, Console& console) {
  const std::vector<uint32_t> counts =
      thread_counts(options.threads != 0 ? options.threads : usable_cores());
  ASSIGN_OR_RETURN(const std::vector<tensor::DType> types, chosen_types(options.types));
  ProgressBar bar(console.err, {.label = "measuring",
                                .total = counts.size() * (1 + types.size()),
                                .is_bytes = false,
                                .is_quiet = options.is_quiet});
  MachineFigures figures;
  for (const tensor::DType type : types) figures.peaks.push_back({type, {}});
  uint64_t done = 0;
  for (const uint32_t threads : counts) {
    ASSIGN_OR_RETURN(const MachineLimits limits,
                     measure_limits(threads, types.front(), tensor::best_kernel_path()));
    figures.limits.push_back(limits);
    bar.update(++done);
    ASSIGN_OR_RETURN(const std::unique_ptr<tensor::WorkerPool> pool,
                     tensor::WorkerPool::create({.workers = static_cast<int>(threads)}));
    for (MatmulPeak& peak : figures.peaks) {
      ASSIGN_OR_RETURN(const double rate, tensor::measure_matmul_peak(*pool, peak.type));
      peak.operations_per_second.push_back(rate);
      bar.update(++done);
    }
  }
  bar.finish();
  return figures;
}

Json json_of(const MachineFigures& figures) {
  const Machine machine = read_machine();
  Json limits = Json::array();
  for (const MachineLimits& limit : figures.limits) limits.push_back(to_json(limit));
  Json peaks = Json::array();
  for (const MatmulPeak& peak : figures.peaks) {
    peaks.push_back({{"type", tensor::dtype_name(peak.type)},
                     {"operations_per_second", peak.operations_per_second}});
  }
  return {{"processor", machine.cpu},
          {"instructions", machine.instructions},
          {"kernels", tensor::kernel_path_name(tensor::best_kernel_path())},
          {"kernels_not_here", kernels_not_here()},
          {"usable_cores", usable_cores()},
          {"limits", std::move(limits)},
          {"matmul", std::move(peaks)}};
}

std::string text_of(const MachineFigures& figures) {
  using enum Table::Align;
  const Machine machine = read_machine();
  KeyValueList facts;
  facts.add("processor", machine.cpu);
  facts.add("instructions", fmt::format("{}", fmt::join(machine.instructions, " ")));
  facts.add("kernels", fmt::format("{} (not on this processor: {})",
                                   tensor::kernel_path_name(tensor::best_kernel_path()),
                                   fmt::join(kernels_not_here(), ", ")));
  std::vector<Table::Column> columns = {{"threads"}};
  std::vector<std::string> read = {"memory read, GB/s"};
  std::vector<std::string> peak = {"float32 peak, Gflop/s"};
  for (const MachineLimits& limits : figures.limits) {
    columns.push_back({fmt::format("{}", limits.threads), kRight});
    read.push_back(fmt::format("{:.1f}", limits.read_bytes_per_second * 1e-9));
    peak.push_back(fmt::format("{:.1f}", limits.float_operations_per_second * 1e-9));
  }
  Table table(std::move(columns));
  table.add_row(std::move(read));
  table.add_row(std::move(peak));
  for (const MatmulPeak& type : figures.peaks) {
    std::vector<std::string> row = {
        fmt::format("matrices of {}, Gflop/s", tensor::dtype_name(type.type))};
    for (const double rate : type.operations_per_second) {
      row.push_back(fmt::format("{:.1f}", rate * 1e-9));
    }
    table.add_row(std::move(row));
  }
  return facts.to_string() + table.to_string();
}

Result<int> bench_machine(const MachineBenchOptions& options, Console& console) {
  ASSIGN_OR_RETURN(const MachineFigures figures, measure(options, console));
  console.out.write(options.is_json ? to_text(json_of(figures)) : text_of(figures));
  return 0;
}

}  // namespace

void add_bench_machine(Program& program, CLI::App& bench) {
  CLI::App& command = program.add_command(
      bench, {.name = "machine",
              .description = "Measure what this machine's memory and arithmetic give at most",
              .examples = "  shoal bench machine\n"
                          "  shoal bench machine --threads 1 --types Q4_0,Q8_0 --json"});
  const auto options = std::make_shared<MachineBenchOptions>();
  command.add_option("--threads", options->threads, "At most; default: the usable cores")
      ->check(CLI::Range(1U, 1024U))
      ->type_name("N");
  command.add_option("--types", options->types, "Of weights, such as Q4_0,Q8_0; default: all")
      ->delimiter(',')
      ->type_name("TYPE,...");
  command.add_flag("-q,--quiet", options->is_quiet, "No progress on standard error");
  command.add_flag("--json", options->is_json, "Print JSON");
  program.set_action(command,
                     [options, &program] { return bench_machine(*options, program.console()); });
}

}  // namespace shoal::cli

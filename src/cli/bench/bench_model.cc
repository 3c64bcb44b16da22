// `shoal bench model MODEL`: prefill and decode speed apart, with median and spread.
#include <fmt/format.h>

#include <memory>

#include "cli/bench/samples.h"
#include "cli/commands.h"
#include "cli/support/format.h"
#include "cli/support/model_setup.h"
#include "cli/support/progress_bar.h"
#include "cli/support/signals.h"

namespace shoal::cli {
namespace {

struct BenchOptions {
  ModelOptions model;
  uint32_t prompt_tokens = 512;
  uint32_t answer_tokens = 128;
  uint32_t repeats = 5;
  bool is_json = false;
};

struct Measured {
  Samples prefill;                     // tokens per second
  Samples decode;                      // tokens per second
  Samples collectives;                 // share of the time
  uint64_t collective_operations = 0;  // of one run
  uint64_t collective_bytes = 0;
};

// Tokens without meaning, the same in every run (a linear congruential generator: Knuth, MMIX).
std::vector<int32_t> meaningless_tokens(size_t count, size_t vocabulary) {
  std::vector<int32_t> tokens;
  uint64_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    tokens.push_back(static_cast<int32_t>((state >> 33U) % vocabulary));
  }
  return tokens;
}

Status measure_once(LoadedModel& loaded, const BenchOptions& options, Measured* measured) {
  runtime::Engine& engine = loaded.engine();
  ASSIGN_OR_RETURN(const runtime::SessionId session, engine.open_session());
  const std::vector<int32_t> prompt = meaningless_tokens(
      options.prompt_tokens, static_cast<size_t>(loaded.text().tokenizer->vocabulary_size()));
  runtime::GenerateRequest request;
  request.session = session;
  request.prompt = prompt;
  request.sampling.temperature = 0;
  request.tokens_max = options.answer_tokens;
  request.cancel = &SignalScope::stop_flag();
  request.on_token = [](runtime::TokenId) { return true; };
  engine.reset_stats();
  ASSIGN_OR_RETURN(const runtime::GenerateResult result, engine.generate(request));
  RETURN_IF_ERROR(engine.close_session(session));
  if (SignalScope::should_stop()) return Status::request("stopped");
  const collective::Counters counters = engine.stats().collectives;
  measured->prefill.add(
      tokens_per_second({.tokens = result.prompt_tokens, .seconds = result.prefill_seconds}));
  measured->decode.add(
      tokens_per_second({.tokens = result.decode_steps, .seconds = result.decode_seconds}));
  const double seconds = result.prefill_seconds + result.decode_seconds;
  measured->collectives.add(seconds > 0 ? counters.seconds / seconds : 0);
  measured->collective_operations = counters.operations;
  measured->collective_bytes = counters.bytes;
  return Status::ok();
}

uint64_t weight_bytes_of(LoadedModel& loaded) {
  uint64_t bytes = 0;
  for (const runtime::NodeStats& node : loaded.engine().stats().nodes) bytes += node.weight_bytes;
  return bytes;
}

Json json_of(LoadedModel& loaded, const BenchOptions& options, const Measured& measured) {
  Json json = {{"model", loaded.model().config.display_name},
               {"prompt_tokens", options.prompt_tokens},
               {"answer_tokens", options.answer_tokens},
               {"repeats", options.repeats},
               {"prefill_tokens_per_second", measured.prefill.to_json()},
               {"decode_tokens_per_second", measured.decode.to_json()},
               {"collective_share", measured.collectives.to_json()},
               {"collective_operations", measured.collective_operations},
               {"collective_bytes", measured.collective_bytes},
               {"weight_bytes", weight_bytes_of(loaded)},
               {"kv_bytes_per_token", loaded.plan().kv_bytes_per_token}};
  json.update(loaded.describe_layout());
  return json;
}

std::string text_of(LoadedModel& loaded, const BenchOptions& options, const Measured& measured) {
  using enum Table::Align;
  Table table(
      {{"phase"}, {"tokens", kRight}, {"median tok/s", kRight}, {"p10", kRight}, {"p90", kRight}});
  const auto add = [&](const char* name, uint32_t tokens, const Samples& samples) {
    table.add_row({name, fmt::format("{}", tokens), fmt::format("{:.1f}", samples.median()),
                   fmt::format("{:.1f}", samples.quantile(0.1)),
                   fmt::format("{:.1f}", samples.quantile(0.9))});
  };
  add("prefill", options.prompt_tokens, measured.prefill);
  add("decode", options.answer_tokens, measured.decode);
  const uint64_t weights = weight_bytes_of(loaded);
  std::string text =
      fmt::format("{}: {} {}, threads of each: {}, runs: {}\n", loaded.model().config.display_name,
                  loaded.plan().ranks.size(), loaded.plan().ranks.size() == 1 ? "node" : "nodes",
                  loaded.threads(), options.repeats);
  text += table.to_string();
  text += fmt::format(
      "decode reads {} of weights a token: {} a second\n", format_bytes(weights),
      format_bytes(static_cast<uint64_t>(static_cast<double>(weights) * measured.decode.median())));
  if (loaded.plan().ranks.size() > 1) {
    text += fmt::format("collectives over {}: {:.1f} % of the time, {} operations of {} a run\n",
                        loaded.link_name(), measured.collectives.median() * 100,
                        measured.collective_operations, format_bytes(measured.collective_bytes));
  }
  return text;
}

Result<int> bench_model(BenchOptions options, Console& console) {
  const uint32_t needed = options.prompt_tokens + options.answer_tokens;
  if (options.model.context == 0) options.model.context = needed;
  if (options.model.context < needed) {
    return Status::request(fmt::format("--ctx {} is less than the {} tokens of a run; leave it out",
                                       options.model.context, needed));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> loaded,
                   LoadedModel::load(options.model, console));
  const SignalScope signals;
  Measured warm_up;
  RETURN_IF_ERROR(measure_once(*loaded, options, &warm_up));
  Measured measured;
  ProgressBar bar(console.err, {.label = "measuring",
                                .total = options.repeats,
                                .is_bytes = false,
                                .is_quiet = options.model.is_quiet});
  for (uint32_t i = 0; i < options.repeats; ++i) {
    RETURN_IF_ERROR(measure_once(*loaded, options, &measured));
    bar.update(i + 1);
  }
  bar.finish();
  console.out.write(options.is_json ? to_text(json_of(*loaded, options, measured))
                                    : text_of(*loaded, options, measured));
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
                          "  shoal bench model smollm2 -p 128 -n 32 --repeats 3 --json"});
  const auto options = std::make_shared<BenchOptions>();
  add_model_name(command, &options->model.model);
  const auto add_number = [&](const char* name, uint32_t& value, const char* description) {
    command.add_option(name, value, description)
        ->check(CLI::Range(1U, 1U << 20U))
        ->type_name("N")
        ->capture_default_str();
  };
  add_number("-p,--prompt-tokens", options->prompt_tokens, "Tokens of the prompt");
  add_number("-n,--answer-tokens", options->answer_tokens, "Tokens to decode");
  add_number("--repeats", options->repeats, "Measured runs, after one to warm up");
  add_layout_options(command, &options->model);
  add_compute_options(command, &options->model);
  command.add_flag("--json", options->is_json, "Print JSON");
  program.set_action(command,
                     [options, &program] { return bench_model(*options, program.console()); });
}

}  // namespace shoal::cli

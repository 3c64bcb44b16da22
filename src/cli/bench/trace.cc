// `shoal trace MODEL`: what every worker of every node does in a few steps, as a file for a trace
// viewer.
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>

#include "cli/bench/model_runs.h"
#include "cli/bench/trace_json.h"
#include "cli/commands.h"
#include "cli/support/files.h"
#include "cli/support/format.h"
#include "cli/support/signals.h"

namespace shoal::cli {
namespace {

struct TraceOptions {
  ModelOptions model;
  std::string path = "trace.json";
  uint32_t steps = 1;
  uint32_t depth = 128;
  uint32_t prompt_tokens = 0;  // not 0: a prompt is traced instead of decode steps
  bool is_json = false;
};

// The traced part: a prompt on an empty context, or steps on top of `depth` tokens.
Result<std::vector<runtime::RankTrace>> record(LoadedModel& loaded, const TraceOptions& options) {
  runtime::Engine& engine = loaded.engine();
  ASSIGN_OR_RETURN(const runtime::SessionId session, engine.open_session());
  const bool is_prefill = options.prompt_tokens > 0;
  const std::vector<int32_t> tokens =
      meaningless_tokens(is_prefill ? options.prompt_tokens : std::max(1U, options.depth),
                         static_cast<size_t>(loaded.text().tokenizer->vocabulary_size()));
  runtime::GenerateRequest request;
  request.session = session;
  request.prompt = tokens;
  request.sampling.temperature = 0;
  request.tokens_max = is_prefill ? 1 : options.steps;
  request.cancel = &SignalScope::stop_flag();
  // Once to warm up. What the context then holds of the prompt is not computed again, so that the
  // second time there are only the steps: the prompt's last token, and the answer's but one.
  RETURN_IF_ERROR(engine.generate(request).status());
  if (is_prefill) RETURN_IF_ERROR(engine.truncate(session, 0));
  RETURN_IF_ERROR(engine.start_trace());
  RETURN_IF_ERROR(engine.generate(request).status());
  auto trace = engine.take_trace();
  if (SignalScope::should_stop()) return Status::request("stopped");
  return trace;
}

Status write(const Json& json, const std::string& path, Console& console) {
  if (path == "-") {
    console.out.write(to_text(json));
    return Status::ok();
  }
  std::ofstream file(path, std::ios::binary);
  file << json.dump() << '\n';
  file.close();
  if (!file) return Status::from_errno("cannot write " + path, errno);
  return Status::ok();
}

struct TraceFacts {
  size_t ranks = 0;
  size_t workers = 0;
  TraceSummary summary;
};

Json json_of(const TraceOptions& options, const TraceFacts& facts) {
  return {{"file", options.path},
          {"ranks", facts.ranks},
          {"workers", facts.workers},
          {"spans", facts.summary.spans},
          {"spans_dropped", facts.summary.dropped},
          {"seconds", facts.summary.seconds}};
}

void report(const TraceOptions& options, const TraceFacts& facts, Console& console) {
  if (facts.summary.dropped > 0) {
    console.err.write_line(fmt::format("shoal: note: {} spans found no room; trace fewer steps",
                                       facts.summary.dropped));
  }
  if (options.is_json) {
    console.out.write(to_text(json_of(options, facts)));
  } else if (options.path != "-" && !options.model.is_quiet) {
    console.err.write_line(fmt::format(
        "{}: {} ranks, {} workers, {} spans, {}; open it in ui.perfetto.dev", options.path,
        facts.ranks, facts.workers, facts.summary.spans, format_seconds(facts.summary.seconds)));
  }
}

Status check(const TraceOptions& options) {
  if (!options.is_json || options.path != "-") return Status::ok();
  return Status::request("--json describes the file with the trace: give -o FILE, not -o -");
}

Result<int> trace(TraceOptions options, Console& console) {
  if (options.path != "-") RETURN_IF_ERROR(check_writable(options.path));
  if (options.model.context == 0) {
    options.model.context_option = options.prompt_tokens > 0 ? "--prompt-tokens" : "--depth";
    options.model.context =
        std::max(kContextMin, (options.prompt_tokens > 0 ? options.prompt_tokens : options.depth) +
                                  options.steps + 1);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> loaded,
                   LoadedModel::load(options.model, console));
  const SignalScope signals;
  ASSIGN_OR_RETURN(const std::vector<runtime::RankTrace> ranks, record(*loaded, options));
  TraceFacts facts{.ranks = ranks.size(), .workers = 0, .summary = summarize(ranks)};
  for (const runtime::RankTrace& rank : ranks) facts.workers += rank.workers;
  std::vector<std::string> names;
  for (const runtime::NodeStats& node : loaded->engine().stats().nodes) names.push_back(node.name);
  RETURN_IF_ERROR(write(trace_json(ranks, names), options.path, console));
  report(options, facts, console);
  RETURN_IF_ERROR(loaded->close());
  return 0;
}

}  // namespace

void add_trace(Program& program) {
  CLI::App& command = program.add_command(
      program.root(),
      {.name = "trace",
       .description = "Write what every worker does in a few steps, for a trace viewer",
       .examples = "  shoal trace smollm2 --nodes 2 --steps 2\n"
                   "  shoal trace smollm2 --prompt-tokens 256 -o prompt.json"});
  const auto options = std::make_shared<TraceOptions>();
  add_model_name(command, &options->model.model);
  const auto add_number = [&](const char* name, uint32_t& value, uint32_t most,
                              const char* description) {
    return command.add_option(name, value, description)
        ->check(CLI::Range(1U, most))
        ->type_name("N");
  };
  command.add_option("-o,--output", options->path, "The file to write; - is standard output")
      ->type_name("FILE")
      ->capture_default_str();
  add_number("--steps", options->steps, 64, "Decode steps to trace")->capture_default_str();
  add_number("--depth", options->depth, 1U << 20U, "Tokens that the context holds before")
      ->capture_default_str();
  add_number("--prompt-tokens", options->prompt_tokens, 1U << 20U,
             "Trace the reading of a prompt of so many tokens instead");
  command.add_flag("--json", options->is_json, "Print what was traced as JSON");
  add_layout_options(command, &options->model);
  add_compute_options(command, &options->model);
  const auto action = [options, &program] { return trace(*options, program.console()); };
  program.set_action(command, action, [options] { return check(*options); });
}

}  // namespace shoal::cli

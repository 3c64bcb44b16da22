// `shoal eval MODEL --text FILE`: how well a model predicts a text, and how near its probabilities
// are to a reference.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/commands.h"
#include "cli/eval/reference.h"
#include "cli/eval/scores.h"
#include "cli/support/files.h"
#include "cli/support/format.h"
#include "cli/support/model_setup.h"
#include "cli/support/progress_bar.h"
#include "cli/support/signals.h"

namespace shoal::cli {
namespace {

constexpr size_t kTextBytesMax = size_t{256} * 1024 * 1024;

struct EvalOptions {
  ModelOptions model;
  std::string text_file;
  std::string reference_file;
  uint32_t window = 512;
  uint32_t windows_max = 0;  // 0: all
  bool by_decode = false;
  bool is_json = false;
};

// Windows of a text that do not overlap, each from an empty cache; the second half of each is
// scored by the token that follows.
class Evaluation {
 public:
  Evaluation(const EvalOptions& options, LoadedModel& loaded, Console& console)
      : options_(options), loaded_(loaded), console_(console) {}

  Status run(std::span<const int32_t> tokens, const Reference* reference) {
    const size_t window = options_.window;
    windows_ = tokens.size() / window;
    if (windows_ == 0) {
      return Status::request(fmt::format(
          "the text has {} tokens, less than one window of {}; give a longer text or a smaller "
          "--window",
          tokens.size(), window));
    }
    if (options_.windows_max != 0) windows_ = std::min<size_t>(windows_, options_.windows_max);
    const size_t scored = windows_ * scored_of_window();
    const bool is_partial = options_.windows_max != 0;
    if (reference != nullptr &&
        (reference->size() < scored || reference->size() % scored_of_window() != 0 ||
         (!is_partial && reference->size() != scored))) {
      return Status::request(fmt::format(
          "the reference has {} positions and this evaluation {}, {} in each window; use the text "
          "and --window that it was made with",
          reference->size(), scored, scored_of_window()));
    }
    ProgressBar bar(console_.err,
                    {.label = options_.by_decode ? "evaluating token by token" : "evaluating",
                     .total = scored,
                     .is_bytes = false,
                     .is_quiet = options_.model.is_quiet});
    const Nanoseconds start = SteadyClock::instance().now();
    for (size_t i = 0; i < windows_; ++i) {
      RETURN_IF_ERROR(score_window(tokens.subspan(i * window, window), reference, &bar));
      if (SignalScope::should_stop()) return Status::request("stopped before the end of the text");
    }
    seconds_ = std::chrono::duration<double>(SteadyClock::instance().now() - start).count();
    bar.finish();
    return Status::ok();
  }

  const Scores& scores() const { return scores_; }
  size_t windows() const { return windows_; }
  double seconds() const { return seconds_; }

 private:
  size_t first_scored() const { return options_.window / 2; }
  size_t scored_of_window() const { return options_.window - 1 - first_scored(); }

  Status score_window(std::span<const int32_t> tokens, const Reference* reference,
                      ProgressBar* bar) {
    Status status;
    const runtime::ScoreRequest request{
        .tokens = tokens,
        .first = first_scored(),
        .by_decode = options_.by_decode,
        .on_logits = [&](size_t position, std::span<const float> logits) {
          if (position + 1 >= tokens.size()) return true;  // nothing follows the last one
          status = scores_.add(logits, tokens[position + 1]);
          if (status.is_ok() && reference != nullptr) {
            status = scores_.compare(logits, reference->position(scores_.positions() - 1));
          }
          bar->update(scores_.positions());
          return status.is_ok() && !SignalScope::should_stop();
        }};
    RETURN_IF_ERROR(loaded_.engine().score(request));
    return status;
  }

  const EvalOptions& options_;
  LoadedModel& loaded_;
  Console& console_;
  Scores scores_;
  size_t windows_ = 0;
  double seconds_ = 0;
};

Json json_of(const Evaluation& evaluation, LoadedModel& loaded, const EvalOptions& options) {
  const Scores& scores = evaluation.scores();
  Json json = {{"model", loaded.model().config.display_name},
               {"perplexity", scores.perplexity()},
               {"positions", scores.positions()},
               {"windows", evaluation.windows()},
               {"window", options.window},
               {"by_decode", options.by_decode},
               {"seconds", evaluation.seconds()}};
  if (const auto divergence = scores.divergence()) {
    json["kl"] = {{"mean", divergence->mean},
                  {"median", divergence->median},
                  {"p99", divergence->p99},
                  {"max", divergence->max}};
    json["same_best"] = divergence->same_best;
  }
  json["tokens_per_second"] = tokens_per_second(
      {.tokens = evaluation.windows() * options.window, .seconds = evaluation.seconds()});
  json.update(loaded.describe_layout());
  return json;
}

std::string text_of(const Evaluation& evaluation, const LoadedModel& loaded,
                    const EvalOptions& options) {
  const Scores& scores = evaluation.scores();
  KeyValueList list;
  list.add("perplexity", fmt::format("{:.4f}", scores.perplexity()));
  list.add("positions", fmt::format("{} in {} windows of {}", scores.positions(),
                                    evaluation.windows(), options.window));
  if (const auto divergence = scores.divergence()) {
    list.add("KL to the reference",
             fmt::format("mean {:.3g}, median {:.3g}, p99 {:.3g} nats", divergence->mean,
                         divergence->median, divergence->p99));
    list.add("same best token", fmt::format("{:.2f} %", divergence->same_best * 100));
  }
  list.add("kernels", loaded.kernels_text());
  list.add("time", fmt::format("{}, {:.1f} tok/s", format_seconds(evaluation.seconds()),
                               tokens_per_second({.tokens = evaluation.windows() * options.window,
                                                  .seconds = evaluation.seconds()})));
  return list.to_string();
}

Status check(const EvalOptions& options) {
  if (options.model.context == 0 || options.model.context >= options.window) return Status::ok();
  return Status::request(fmt::format("--ctx {} is less than --window {}; leave out --ctx",
                                     options.model.context, options.window));
}

// A reference that never agrees is one of something else.
void warn_of_reference(const Scores& scores, Console& console) {
  const auto divergence = scores.divergence();
  if (!divergence || divergence->same_best > 0) return;
  console.err.write_line(
      "shoal: note: the reference has another best token at every position; it may be one of "
      "another model, text or --window");
}

Result<int> evaluate(EvalOptions options, Console& console) {
  ASSIGN_OR_RETURN(const std::string text, read_file(options.text_file, kTextBytesMax));
  std::unique_ptr<Reference> reference;
  if (!options.reference_file.empty()) {
    ASSIGN_OR_RETURN(Reference read, Reference::read(options.reference_file));
    reference = std::make_unique<Reference>(std::move(read));
  }
  if (options.model.context == 0) {
    options.model.context = std::max(kContextMin, options.window);
    options.model.context_option = "--window";
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> loaded,
                   LoadedModel::load(options.model, console));
  const SignalScope signals;
  ASSIGN_OR_RETURN(const std::vector<int32_t> tokens,
                   loaded->text().tokenizer->encode(text, {.add_special = false}));
  Evaluation evaluation(options, *loaded, console);
  RETURN_IF_ERROR(evaluation.run(tokens, reference.get()));
  if (!options.model.is_quiet) warn_of_reference(evaluation.scores(), console);
  console.out.write(options.is_json ? to_text(json_of(evaluation, *loaded, options))
                                    : text_of(evaluation, *loaded, options));
  RETURN_IF_ERROR(loaded->close());
  return 0;
}

}  // namespace

void add_eval(Program& program) {
  CLI::App& command = program.add_command(
      program.root(),
      {.name = "eval",
       .description = "Measure perplexity, and distance to a reference, on a text",
       .examples = "  shoal eval smollm2 --text book.txt\n"
                   "  shoal eval smollm2 --text book.txt --reference book.top64 --nodes 2 --exact\n"
                   "  shoal eval smollm2 --text book.txt --decode --json"});
  const auto options = std::make_shared<EvalOptions>();
  add_model_name(command, &options->model.model);
  command.add_option("--text", options->text_file, "The text, UTF-8")
      ->required()
      ->type_name("FILE");
  command
      .add_option("--reference", options->reference_file,
                  "Best 64 tokens of each scored position, from an exact reader")
      ->type_name("FILE");
  command.add_option("--window", options->window, "Tokens of a window, each from an empty cache")
      ->check(CLI::Range(4U, 1U << 20U))
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--limit", options->windows_max, "Take only the first N windows")
      ->check(CLI::Range(1U, 1U << 30U))
      ->type_name("N");
  command.add_flag("--decode", options->by_decode, "Token by token, as answers are made");
  add_layout_options(command, &options->model);
  add_compute_options(command, &options->model);
  command.add_flag("--json", options->is_json, "Print JSON");
  const auto action = [options, &program] { return evaluate(*options, program.console()); };
  program.set_action(command, action, [options] { return check(*options); });
}

}  // namespace shoal::cli

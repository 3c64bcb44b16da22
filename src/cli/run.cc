// `shoal run MODEL [PROMPT]`: one answer, or a chat where there is no prompt.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <memory>

#include "base/foreign/json.h"
#include "cli/chat/chat_loop.h"
#include "cli/commands.h"
#include "cli/support/files.h"
#include "cli/support/format.h"
#include "cli/support/progress_bar.h"
#include "cli/support/signals.h"
#include "runtime/stop_matcher.h"

namespace shoal::cli {
namespace {

constexpr size_t kPromptBytesMax = size_t{64} * 1024 * 1024;
// A prompt longer than this shows how far it is read.
constexpr size_t kLongPromptTokens = 512;

struct RunOptions {
  ModelOptions model;
  GenerationOptions generation;
  std::string prompt;
  std::string messages_file;
  std::string logits_file;
  std::string system;
  bool has_prompt = false;
  bool is_raw = false;
  bool parses_special = false;
  bool is_json = false;
  bool shows_stats = false;
  Nanoseconds program_started{0};
};

constexpr std::array<std::string_view, 4> kRoles = {"system", "user", "assistant", "tool"};

Status check_message(const Json& message) {
  if (!message.is_object()) return Status::request(R"(is no {"role", "content"})");
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string()) return Status::request("has no role");
  const auto name = role->get<std::string>();
  if (std::ranges::find(kRoles, name) == kRoles.end()) {
    return Status::request(
        fmt::format("has the role \"{}\"; there are {}", escape(name), fmt::join(kRoles, ", ")));
  }
  const auto content = message.find("content");
  const bool is_call = name == "assistant" && message.contains("tool_calls");
  if (content == message.end() || content->is_null()) {
    return is_call ? Status::ok() : Status::request("has no content");
  }
  if (!content->is_string()) return Status::request("has a content that is no text");
  return Status::ok();
}

// The file of --messages.
Status check_messages(const Json& messages) {
  if (!messages.is_array()) {
    return Status::request(
        R"(is no JSON list of messages, such as [{"role": "user", "content": "Hello"}])");
  }
  if (messages.empty()) return Status::request("needs at least one message");
  for (size_t i = 0; i < messages.size(); ++i) {
    if (const Status status = check_message(messages[i]); !status.is_ok()) {
      return Status::request(fmt::format("message {} {}", i + 1, status.message()));
    }
  }
  return Status::ok();
}

// What the answer continues: the prompt's ids and its text.
Result<RenderedPrompt> make_prompt(const RunOptions& options, const TextParts& text,
                                   const std::string& prompt) {
  if (options.is_raw) {
    RenderedPrompt raw{.text = prompt, .ids = {}};
    ASSIGN_OR_RETURN(raw.ids,
                     text.tokenizer->encode(prompt, {.parse_special = options.parses_special}));
    if (raw.ids.empty()) {
      return Status::request("the prompt is empty, so there is nothing to continue; give a PROMPT");
    }
    return raw;
  }
  Json messages = Json::array();
  if (!options.system.empty()) {
    messages.push_back({{"role", "system"}, {"content", options.system}});
  }
  if (options.messages_file.empty()) {
    messages.push_back({{"role", "user"}, {"content", prompt}});
    return render_chat(text, messages);
  }
  ASSIGN_OR_RETURN(const std::string json, read_file(options.messages_file, kPromptBytesMax));
  RETURN_IF_ERROR(check_json(json, options.messages_file));
  const Json parsed = Json::parse(json, nullptr, false);
  RETURN_IF_ERROR(check_messages(parsed).with_context(options.messages_file));
  for (const Json& message : parsed) messages.push_back(message);
  return render_chat(text, messages);
}

Status write_logits(LoadedModel& loaded, const std::vector<int32_t>& ids, const std::string& path) {
  std::vector<float> logits;
  const runtime::ScoreRequest request{
      .tokens = ids,
      .first = ids.size() - 1,
      .on_logits = [&](size_t /*position*/, std::span<const float> row) {
        logits.assign(row.begin(), row.end());
        return true;
      }};
  RETURN_IF_ERROR(loaded.engine().score(request));
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(logits.data()),
             static_cast<std::streamsize>(logits.size() * sizeof(float)));
  file.close();
  if (!file) return Status::from_errno("cannot write " + path, errno);
  return Status::ok();
}

// From the program's start; fetching a model is part of it.
double first_token_seconds(const RunOptions& options, const Answer& answer) {
  return std::chrono::duration<double>(*answer.first_token - options.program_started).count();
}

Json describe(LoadedModel& loaded, const RenderedPrompt& prompt, const Answer& answer) {
  Json json = {{"model", loaded.model().config.display_name},
               {"prompt", prompt.text},
               {"prompt_ids", prompt.ids},
               {"ids", answer.result.tokens},
               {"text", answer.text},
               {"stop_reason", runtime::stop_reason_name(answer.result.reason)},
               {"stop", answer.stop ? Json(*answer.stop) : Json(nullptr)},
               {"seed", answer.result.seed},
               {"prefill", to_json(prefill_speed(answer))},
               {"decode", to_json(decode_speed(answer))},
               {"collectives", to_json(answer.collectives)}};
  json.update(loaded.describe_layout());
  return json;
}

bool wants_stats(const RunOptions& options, const Console& console) {
  const bool is_for_people =
      console.err.is_terminal() && !options.is_json && !options.model.is_quiet;
  return options.shows_stats || is_for_people;
}

// Streams one answer, or prints it whole as JSON.
class OneAnswer {
 public:
  OneAnswer(LoadedModel& loaded, Console& console, const RunOptions& options)
      : loaded_(loaded), console_(console), options_(options) {}

  Status run(const RenderedPrompt& prompt) {
    if (!options_.logits_file.empty()) {
      RETURN_IF_ERROR(write_logits(loaded_, prompt.ids, options_.logits_file));
    }
    ASSIGN_OR_RETURN(const runtime::SessionId session, loaded_.engine().open_session());
    ProgressBar bar(console_.err,
                    {.label = "reading the prompt",
                     .total = prompt.ids.size(),
                     .is_bytes = false,
                     .is_quiet = options_.model.is_quiet || !console_.err.is_terminal() ||
                                 prompt.ids.size() < kLongPromptTokens});
    const AnswerRequest request{.session = session,
                                .prompt = prompt.ids,
                                .options = options_.generation,
                                .on_text = [&](std::string_view text) { return show(text, &bar); },
                                .on_prefill = [&](size_t done, size_t) { bar.update(done); }};
    ASSIGN_OR_RETURN(const Answer answer, generate_answer(loaded_, request));
    bar.finish();
    if (options_.is_json) {
      Json json = describe(loaded_, prompt, answer);
      json["start_to_first_token_seconds"] =
          answer.first_token ? Json(first_token_seconds(options_, answer)) : Json(nullptr);
      console_.out.write(to_text(json));
    } else {
      console_.out.write("\n");
    }
    if (wants_stats(options_, console_)) show_stats(answer);
    return Status::ok();
  }

 private:
  bool show(std::string_view text, ProgressBar* bar) {
    bar->finish();
    if (!options_.is_json) {
      console_.out.write(console_.out.is_terminal() ? without_controls(text) : text);
    }
    return !console_.out.is_done();
  }

  void show_stats(const Answer& answer) {
    const bool is_grey = console_.err.is_terminal();
    std::string first = fmt::format("loaded in {}", format_seconds(loaded_.load_seconds()));
    if (answer.first_token) {
      first = fmt::format("first token {} after the start · ",
                          format_seconds(first_token_seconds(options_, answer))) +
              first;
    }
    for (const std::string& line :
         {stats_line(loaded_, answer), std::move(first), nodes_line(loaded_)}) {
      console_.err.write_line(is_grey ? "\x1b[90m" + line + "\x1b[0m" : line);
    }
  }

  LoadedModel& loaded_;
  Console& console_;
  const RunOptions& options_;
};

Status chat(LoadedModel& loaded, Console& console, const RunOptions& options) {
  std::unique_ptr<LineSource> lines = make_pipe_lines();
  if (isatty(STDIN_FILENO) == 1) {
    ASSIGN_OR_RETURN(lines, make_terminal_lines());
  }
  ChatLoop loop(loaded, *lines, console,
                {.generation = options.generation,
                 .system = options.system,
                 .shows_stats = wants_stats(options, console)});
  return loop.run();
}

Status check(const RunOptions& options) {
  const bool is_chat = !options.has_prompt && options.messages_file.empty();
  if (is_chat && (options.is_raw || options.is_json)) {
    return Status::request(
        fmt::format("{} needs a PROMPT; give one, or - to read it from standard input",
                    options.is_raw ? "--raw" : "--json"));
  }
  if (options.has_prompt && !options.messages_file.empty()) {
    return Status::request("give a PROMPT or --messages, not both");
  }
  if (options.is_raw && (!options.messages_file.empty() || !options.system.empty())) {
    return Status::request("--raw takes no messages: leave out --system and --messages");
  }
  if (options.parses_special && !options.is_raw) {
    return Status::request("--special goes with --raw: a chat's template writes control tokens");
  }
  RETURN_IF_ERROR(sampling_params(options.generation).status());
  RETURN_IF_ERROR(check_utf8("--system", options.system));
  for (const std::string& stop : options.generation.stops) {
    RETURN_IF_ERROR(check_utf8("--stop", stop));
  }
  return runtime::StopMatcher::create(options.generation.stops).status().with_context("--stop");
}

Result<int> run(const RunOptions& options, Console& console) {
  if (!options.logits_file.empty()) RETURN_IF_ERROR(check_writable(options.logits_file));
  std::string text = options.prompt;
  if (options.has_prompt && text == "-") {
    ASSIGN_OR_RETURN(text, read_standard_input(kPromptBytesMax));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<LoadedModel> loaded,
                   LoadedModel::load(options.model, console));
  const SignalScope signals;
  if (!options.has_prompt && options.messages_file.empty()) {
    ASSIGN_OR_RETURN(
        const RenderedPrompt probe,
        render_chat(loaded->text(), Json::parse(R"([{"role":"user","content":"a"}])")));
    RETURN_IF_ERROR(chat(*loaded, console, options));
    RETURN_IF_ERROR(loaded->close());
    return 0;
  }
  ASSIGN_OR_RETURN(const RenderedPrompt prompt, make_prompt(options, loaded->text(), text));
  if (prompt.ids.size() >= loaded->context()) {
    return Status::request(fmt::format("the prompt has {} tokens and the context holds {}; {}",
                                       prompt.ids.size(), loaded->context(),
                                       shorter_prompt_remedy(loaded->context(), loaded->model())));
  }
  RETURN_IF_ERROR(OneAnswer(*loaded, console, options).run(prompt));
  RETURN_IF_ERROR(loaded->close());
  return 0;
}

void add_options(CLI::App& command, RunOptions* options) {
  add_model_name(command, &options->model.model);
  command.add_option("PROMPT", options->prompt,
                     "What to answer; - reads it from standard input; none starts a chat");
  add_layout_options(command, &options->model);
  add_compute_options(command, &options->model);
  command.add_option("--system", options->system, "The system message")->type_name("TEXT");
  command
      .add_option("--messages", options->messages_file,
                  "A whole conversation to answer: a JSON list of {\"role\", \"content\"}")
      ->type_name("FILE");
  command.add_flag("--raw", options->is_raw, "Continue PROMPT as plain text, without a template");
  command.add_flag("--special", options->parses_special,
                   "With --raw: text such as <|im_end|> is the control token");
  command.add_flag("--json", options->is_json, "Print ids, text, speeds and nodes as JSON");
  command.add_flag("--stats", options->shows_stats,
                   "Print speeds on standard error, also where that is no terminal");
  command
      .add_option("--logits", options->logits_file,
                  "Write the logits that follow the prompt to FILE, as float32")
      ->type_name("FILE");
  add_generation_options(command, &options->generation);
}

}  // namespace

void add_run(Program& program) {
  CLI::App& command = program.add_command(
      program.root(),
      {.name = "run",
       .description = "Answer a prompt, or chat",
       .examples = "  shoal run smollm2                       # a chat\n"
                   "  shoal run smollm2 \"Why is the sky blue?\" --nodes 2\n"
                   "  shoal run ./model.gguf - < question.txt\n"
                   "  shoal run smollm2 \"Once upon a time\" --raw -n 50 --temperature 0\n"
                   "  shoal run smollm2 \"Hello\" --nodes 3 --split 2,1,1 --link tcp --json"});
  // Shared: the options live as long as the action that reads them.
  const auto options = std::make_shared<RunOptions>();
  add_options(command, options.get());
  const auto action = [options, &program] {
    options->program_started = program.started();
    return run(*options, program.console());
  };
  program.set_action(command, action, [options, &command] {
    options->has_prompt = command.get_option("PROMPT")->count() > 0;
    return check(*options);
  });
}

}  // namespace shoal::cli

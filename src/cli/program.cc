#include "cli/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/log.h"
#include "build_info.h"
#include "cli/support/signals.h"

namespace shoal::cli {
namespace {

constexpr size_t kOptionColumns = 34;
// A name with at most so many wrong letters is taken for a typo.
constexpr size_t kTypoMax = 2;

// Help as the manual has it: a value's name without the words of its checks, the default behind the
// description.
class HelpFormatter final : public CLI::Formatter {
 public:
  std::string make_option_opts(const CLI::Option* option) const override {
    if (option->get_positional() || option->get_items_expected_max() == 0) return {};
    const std::string value = option->get_type_name();
    return " " + value.substr(0, value.find(':'));
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    const std::string value = option->get_default_str();
    return option->get_description() + (value.empty() ? "" : fmt::format(" (default: {})", value));
  }
};

// CLI11 puts the command's own name behind what it is given.
std::string help_of(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return command.help(parent == nullptr ? "" : full_name(*parent));
}

std::string version_text() {
  std::string text = fmt::format("shoal {} ({}, {}, {}, {}", kBuildVersion, kBuildCommit,
                                 kBuildType, kBuildCompiler, kBuildTarget);
  if (*kBuildSanitize != '\0') text += fmt::format(", sanitize={}", kBuildSanitize);
  return text + ")";
}

// The least number of letters to put in, leave out or replace (Levenshtein).
size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<size_t> row(to.size() + 1);  // of the letters of `from` so far, by letters of `to`
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 0; i < from.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < to.size(); ++j) {
      const size_t replaced = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

// "; did you mean NAME?" where one of the names is near.
std::string suggestion(std::string_view given, const std::vector<std::string>& names) {
  size_t least = kTypoMax + 1;
  std::string_view nearest;
  for (const std::string& name : names) {
    const size_t distance = edit_distance(given, name);
    if (distance >= std::min(least, name.size())) continue;
    least = distance;
    nearest = name;
  }
  return nearest.empty() ? std::string() : fmt::format("; did you mean {}?", nearest);
}

std::string unknown_option(const CLI::App& command, const std::string& argument) {
  const std::string given = argument.substr(0, argument.find('='));
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return fmt::format("there is no option {}{}", given, suggestion(given, names));
}

// What of the command line has no meaning; empty where all of it has.
std::string unexpected(const CLI::App& command) {
  const std::vector<std::string> rest = command.remaining();
  if (rest.empty()) return {};
  for (const std::string& argument : rest) {
    if (argument.size() > 1 && argument.front() == '-') return unknown_option(command, argument);
  }
  std::vector<std::string> commands;
  for (const CLI::App* below : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (!below->get_group().empty()) commands.push_back(below->get_name());
  }
  if (!commands.empty()) {
    return fmt::format("there is no command {}{}", rest.front(),
                       suggestion(rest.front(), commands));
  }
  return fmt::format("\"{}\" was not expected (a text of several words goes in quotes)",
                     fmt::join(rest, " "));
}

}  // namespace

std::string full_name(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name() : full_name(*parent) + " " + command.get_name();
}

Program::Program(Console& console)
    : console_(console), root_("Joins several machines into one machine for AI", "shoal") {
  root_.set_version_flag("--version", version_text(), "Show the version and how it was built");
  root_.set_help_flag("-h,--help", "Show this help");
  const auto formatter = std::make_shared<HelpFormatter>();  // shared: CLI11 asks for it
  formatter->column_width(kOptionColumns);
  root_.formatter(formatter);
  root_.require_subcommand(0, 1);
  root_.footer(
      "Start with:\n"
      "  shoal run smollm2 \"What is the capital of France?\" --nodes 2\n\n"
      "`shoal COMMAND --help` shows a command's options and examples.");
}

CLI::App& Program::add_command(CLI::App& parent, const CommandText& text) {
  CLI::App* command = parent.add_subcommand(text.name, text.description);
  command->footer(text.examples.empty() ? "" : "Examples:\n" + text.examples);
  return *command;
}

void Program::set_action(const CLI::App& command, Action action, Check check) {
  works_.push_back({.command = &command, .action = std::move(action), .check = std::move(check)});
}

CLI::App& Program::chosen() {
  CLI::App* app = &root_;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return *app;
}

// The one place that meets CLI11's exceptions: 0 to go on, else the exit code plus one.
int Program::parse(int argc, char** argv) {
  try {
    root_.parse(argc, argv);
    return 0;
  } catch (const CLI::CallForHelp&) {
    console_.out.write(help_of(chosen()));
  } catch (const CLI::CallForAllHelp&) {
    console_.out.write(root_.help("", CLI::AppFormatMode::All));
  } catch (const CLI::CallForVersion& version) {
    console_.out.write_line(version.what());
  } catch (const CLI::ParseError& error) {
    // An option that was misspelt tends to make others miss their values.
    std::string what = unexpected(chosen());
    if (what.empty()) what = error.what();
    console_.err.write_line(fmt::format("shoal: {}; see `{} --help`", what, full_name(chosen())));
    return kExitUsage + 1;
  }
  return 1;
}

int Program::report(const Status& status, int code) {
  console_.err.write_line("shoal: " + status.message());
  return code;
}

int Program::run(int argc, char** argv) {
  const int end = parse(argc, argv);
  const int code = end != 0 ? end - 1 : run_chosen();
  if (code != 0 || console_.out.status().is_ok()) return code;
  return report(console_.out.status());
}

int Program::run_chosen() {
  const CLI::App& command = chosen();
  const auto work = std::ranges::find(works_, &command, &Work::command);
  if (work == works_.end()) {
    console_.out.write(help_of(command));
    return 0;
  }
  if (work->check) {
    if (const Status status = work->check(); !status.is_ok()) return report(status, kExitUsage);
  }
  init_logging("shoal");
  const Result<int> result = work->action();
  if (const int signal = SignalScope::termination_signal(); signal != 0) return 128 + signal;
  if (console_.out.is_closed()) return 0;
  const bool is_interrupted = SignalScope::is_interrupted();
  if (!result.is_ok()) return report(result.status(), is_interrupted ? 128 + SIGINT : kExitFailed);
  return is_interrupted ? 128 + SIGINT : *result;
}

}  // namespace shoal::cli

#include "cli/program.h"

#include <fmt/format.h>

#include "base/log.h"
#include "build_info.h"
#include "cli/support/signals.h"

namespace shoal::cli {
namespace {

constexpr size_t kOptionColumns = 34;

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

void Program::set_action(const CLI::App& command, Action action) {
  actions_.emplace_back(&command, std::move(action));
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
    console_.err.write_line(
        fmt::format("shoal: {}; see `{} --help`", error.what(), full_name(chosen())));
    return kExitUsage + 1;
  }
  return 1;
}

int Program::report(const Status& status) {
  console_.err.write_line("shoal: " + status.message());
  return kExitFailed;
}

int Program::run(int argc, char** argv) {
  if (const int end = parse(argc, argv); end != 0) return end - 1;
  const CLI::App& command = chosen();
  const Action* action = nullptr;
  for (const auto& [app, candidate] : actions_) {
    if (app == &command) action = &candidate;
  }
  if (action == nullptr) {
    console_.out.write(help_of(command));
    return 0;
  }
  init_logging("shoal");
  const Result<int> result = (*action)();
  if (const int signal = SignalScope::termination_signal(); signal != 0) return 128 + signal;
  if (console_.out.is_closed()) return 0;
  if (!result.is_ok()) return report(result.status());
  if (!console_.out.status().is_ok()) return report(console_.out.status());
  return *result;
}

}  // namespace shoal::cli

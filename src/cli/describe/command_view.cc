#include "cli/describe/command_view.h"

#include <CLI/CLI.hpp>
#include <sstream>

namespace shoal::cli {
namespace {

// {"shm", "tcp"} from "{shm,tcp}".
std::vector<std::string> choices_of(const std::string& value) {
  std::vector<std::string> choices;
  if (!value.starts_with('{') || !value.ends_with('}')) return choices;
  std::istringstream words(value.substr(1, value.size() - 2));
  for (std::string word; std::getline(words, word, ',');) choices.push_back(word);
  return choices;
}

OptionView describe_option(const CLI::Option& option) {
  OptionView view;
  view.description = option.get_description();
  view.is_positional = option.get_positional();
  view.is_required = option.get_required();
  if (view.is_positional) {
    view.names.push_back(option.get_name(true, false));
  } else {
    for (const std::string& name : option.get_snames()) view.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) view.names.push_back("--" + name);
  }
  if (option.get_items_expected_max() > 0) {
    // Checks add their own words to the name of a type, after a colon.
    view.value = view.is_positional ? view.names.front() : option.get_type_name();
    if (const size_t colon = view.value.find(':'); colon != std::string::npos) {
      view.value.resize(colon);
    }
    view.choices = choices_of(view.value);
    view.default_text = option.get_default_str();
  }
  view.takes_file = view.value == "FILE" || view.value == "MODEL";
  return view;
}

}  // namespace

CommandView describe(const CLI::App& command) {
  CommandView view;
  for (const CLI::App* app = &command; app != nullptr; app = app->get_parent()) {
    view.path.insert(view.path.begin(), app->get_name());
  }
  view.description = command.get_description();
  view.footer = command.get_footer();
  for (const CLI::Option* option : command.get_options()) {
    if (!option->get_group().empty()) view.options.push_back(describe_option(*option));
  }
  for (const CLI::App* child : command.get_subcommands([](const CLI::App*) { return true; })) {
    if (!child->get_group().empty()) view.commands.push_back(describe(*child));
  }
  return view;
}

std::vector<const CommandView*> flatten(const CommandView& root) {
  std::vector<const CommandView*> all = {&root};
  for (const CommandView& child : root.commands) {
    for (const CommandView* below : flatten(child)) all.push_back(below);
  }
  return all;
}

}  // namespace shoal::cli

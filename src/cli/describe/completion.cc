#include "cli/describe/completion.h"

#include <fmt/format.h>

namespace shoal::cli {
namespace {

constexpr std::string_view kModelNames = "smollm2";

std::string replace_all(std::string text, std::string_view from, std::string_view to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// "run", "bench model": how a command is told from the others. The root is "".
std::string key_of(const CommandView& command) {
  return fmt::format("{}", fmt::join(command.path.begin() + 1, command.path.end(), " "));
}

std::vector<std::string> words_of(const CommandView& command) {
  std::vector<std::string> words;
  words.reserve(command.commands.size() + command.options.size());
  for (const CommandView& child : command.commands) words.push_back(child.path.back());
  for (const OptionView& option : command.options) {
    if (option.is_positional) continue;
    words.insert(words.end(), option.names.begin(), option.names.end());
  }
  return words;
}

const OptionView* positional_of(const CommandView& command) {
  for (const OptionView& option : command.options) {
    if (option.is_positional) return &option;
  }
  return nullptr;
}

bool takes_model(const CommandView& command) {
  const OptionView* option = positional_of(command);
  return option != nullptr && (option->names[0] == "MODEL" || option->names[0] == "NAME");
}

// bash: one case per option of a command that takes a value.
std::string bash_values(const CommandView& command) {
  std::string cases;
  for (const OptionView& option : command.options) {
    if (option.is_positional || option.value.empty()) continue;
    std::string action = "return";  // nothing to offer for a number or a text
    if (!option.choices.empty()) {
      action = fmt::format("COMPREPLY=($(compgen -W \"{}\" -- \"$current\")); return",
                           fmt::join(option.choices, " "));
    } else if (option.takes_file) {
      action = "COMPREPLY=($(compgen -f -- \"$current\")); return";
    }
    cases += fmt::format("    \"{}\"|", key_of(command) + " " + option.names[0]);
    for (size_t i = 1; i < option.names.size(); ++i) {
      cases += fmt::format("\"{}\"|", key_of(command) + " " + option.names[i]);
    }
    cases.pop_back();
    cases += fmt::format(") {} ;;\n", action);
  }
  return cases;
}

std::string zsh_quoted(const std::string& text) {
  std::string out = replace_all(text, "'", "'\\''");
  out = replace_all(std::move(out), "[", "\\[");
  out = replace_all(std::move(out), "]", "\\]");
  return replace_all(std::move(out), ":", "\\:");
}

std::string zsh_value(const OptionView& option) {
  if (option.value.empty()) return "";
  if (!option.choices.empty()) {
    return fmt::format(":value:({})", fmt::join(option.choices, " "));
  }
  return option.takes_file ? ":file:_files" : fmt::format(":{}:", zsh_quoted(option.value));
}

// The arguments of one command for zsh's _arguments.
std::string zsh_arguments(const CommandView& command, std::string_view indent) {
  std::string out;
  for (const OptionView& option : command.options) {
    if (option.is_positional) continue;
    for (const std::string& name : option.names) {
      out += fmt::format(" \\\n{}'{}[{}]{}'", indent, name, zsh_quoted(option.description),
                         zsh_value(option));
    }
  }
  return out;
}

std::string fish_quoted(const std::string& text) {
  return replace_all(replace_all(text, "\\", "\\\\"), "'", "\\'");
}

// The condition under which a command's options are offered.
std::string fish_condition(const CommandView& command) {
  if (command.path.size() == 1) return "__fish_use_subcommand";
  std::string condition;
  for (size_t i = 1; i < command.path.size(); ++i) {
    condition +=
        fmt::format("{}__fish_seen_subcommand_from {}", i > 1 ? "; and " : "", command.path[i]);
  }
  for (const CommandView& child : command.commands) {
    condition += fmt::format("; and not __fish_seen_subcommand_from {}", child.path.back());
  }
  return condition;
}

std::string fish_option(const OptionView& option) {
  std::string out;
  for (const std::string& name : option.names) {
    out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  }
  if (!option.value.empty()) {
    out += option.takes_file ? " -r -F" : " -x";
    if (!option.choices.empty()) {
      out += fmt::format(" -a '{}'", fmt::join(option.choices, " "));
    }
  }
  return out + fmt::format(" -d '{}'", fish_quoted(option.description));
}

}  // namespace

std::string bash_completion(const CommandView& root) {
  std::string commands;
  std::string words;
  std::string values;
  std::string models;
  for (const CommandView* command : flatten(root)) {
    const std::string key = key_of(*command);
    for (const CommandView& child : command->commands) {
      commands += fmt::format("      \"{}\") key=\"{}\" ;;\n", key + " " + child.path.back(),
                              key_of(child));
    }
    words += fmt::format("    \"{}\") words=\"{}\" ;;\n", key, fmt::join(words_of(*command), " "));
    values += bash_values(*command);
    if (takes_model(*command)) models += fmt::format("{}\"{}\"", models.empty() ? "" : "|", key);
  }
  return fmt::format(
      R"(# bash completion for shoal; made by `shoal completion bash`.
_shoal() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" previous="${{COMP_WORDS[COMP_CWORD-1]}}"
  local key="" words="" i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$key ${{COMP_WORDS[i]}}" in
{}    esac
  done
  case "$key $previous" in
{}  esac
  case "$key" in
{}  esac
  if [[ "$current" != -* ]]; then
    case "$key" in
      {}) words="$words {}"; COMPREPLY=($(compgen -f -- "$current")) ;;
    esac
  fi
  COMPREPLY+=($(compgen -W "$words" -- "$current"))
}}
complete -o filenames -F _shoal shoal
)",
      commands, values, words, models, kModelNames);
}

std::string zsh_completion(const CommandView& root) {
  std::string functions;
  for (const CommandView* command : flatten(root)) {
    const std::string name = fmt::format("_{}", fmt::join(command->path, "_"));
    std::string body;
    if (command->commands.empty()) {
      body = "  _arguments" + zsh_arguments(*command, "    ");
      for (const OptionView& option : command->options) {
        if (!option.is_positional) continue;
        const bool is_model = option.names[0] == "MODEL" || option.names[0] == "NAME";
        body += fmt::format(
            " \\\n    '{}:{}:{}'", option.is_required ? "" : ":", zsh_quoted(option.names[0]),
            is_model
                ? fmt::format("{{_alternative \"names:model:({})\" "
                              "\"files:file:_files\"}}",
                              kModelNames)
                : (option.choices.empty() ? ""
                                          : fmt::format("({})", fmt::join(option.choices, " "))));
      }
      body += "\n";
    } else {
      std::string cases;
      std::string list;
      for (const CommandView& child : command->commands) {
        list += fmt::format("    '{}:{}'\n", child.path.back(), zsh_quoted(child.description));
        cases += fmt::format("        {0}) {1}_{0} ;;\n", child.path.back(), name);
      }
      body = fmt::format(
          "  local curcontext=\"$curcontext\" state line\n  local -a commands=(\n{}  )\n"
          "  _arguments -C{} \\\n    '1:command:->command' \\\n    '*::argument:->argument'\n"
          "  case $state in\n    command) _describe command commands ;;\n    argument)\n"
          "      case $line[1] in\n{}      esac ;;\n  esac\n",
          list, zsh_arguments(*command, "    "), cases);
    }
    functions += fmt::format("{}() {{\n{}}}\n\n", name, body);
  }
  return "#compdef shoal\n# zsh completion for shoal; made by `shoal completion zsh`.\n\n" +
         functions + "_shoal \"$@\"\n";
}

std::string fish_completion(const CommandView& root) {
  std::string out =
      "# fish completion for shoal; made by `shoal completion fish`.\n"
      "complete -c shoal -f\n";
  for (const CommandView* command : flatten(root)) {
    const std::string condition = fish_condition(*command);
    for (const CommandView& child : command->commands) {
      out += fmt::format("complete -c shoal -n '{}' -a {} -d '{}'\n", condition, child.path.back(),
                         fish_quoted(child.description));
    }
    for (const OptionView& option : command->options) {
      if (option.is_positional) continue;
      out += fmt::format("complete -c shoal -n '{}'{}\n", condition, fish_option(option));
    }
    if (takes_model(*command)) {
      out += fmt::format("complete -c shoal -n '{}' -F -a '{}'\n", condition, kModelNames);
    }
    if (const OptionView* option = positional_of(*command);
        option != nullptr && !option->choices.empty()) {
      out += fmt::format("complete -c shoal -n '{}' -a '{}'\n", condition,
                         fmt::join(option->choices, " "));
    }
  }
  return out;
}

}  // namespace shoal::cli

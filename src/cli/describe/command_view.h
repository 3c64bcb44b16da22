// CommandView: the commands and options that the program understands, as plain values.
//
// The help, the shell completions and the manual are all made from one tree of CLI11, so that none
// of them drifts. Thread rule: values.
#pragma once

#include <string>
#include <vector>

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11 calls it so
class App;
}

namespace shoal::cli {

struct OptionView {
  std::vector<std::string> names;  // "-n", "--max-tokens"; one bare name for a positional
  std::string description;
  std::string value;                 // what it takes: "N"; empty for a flag
  std::vector<std::string> choices;  // of a value that is one of a few words
  std::string default_text;
  bool is_positional = false;
  bool is_required = false;
  bool takes_file = false;  // a path of the file system
};

struct CommandView {
  std::vector<std::string> path;  // {"shoal", "bench", "model"}
  std::string description;
  std::string footer;
  std::vector<OptionView> options;
  std::vector<CommandView> commands;  // without hidden ones
};

CommandView describe(const CLI::App& command);

// The command itself and all below it, in the order of the help.
std::vector<const CommandView*> flatten(const CommandView& root);

}  // namespace shoal::cli

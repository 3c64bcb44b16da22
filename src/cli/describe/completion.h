// Completion scripts for bash, zsh and fish, made from the command tree.
//
// Thread rule: pure functions.
#pragma once

#include <string>

#include "cli/describe/command_view.h"

namespace shoal::cli {

std::string bash_completion(const CommandView& root);
std::string zsh_completion(const CommandView& root);
std::string fish_completion(const CommandView& root);

}  // namespace shoal::cli

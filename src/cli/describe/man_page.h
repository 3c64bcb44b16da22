// The manual page, made from the command tree and a few sections of prose.
//
// Format: the man macros of roff (man(7)). Thread rule: pure functions.
#pragma once

#include <string>

#include "cli/describe/command_view.h"

namespace shoal::cli {

std::string man_page(const CommandView& root);

}  // namespace shoal::cli

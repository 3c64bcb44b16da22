// Whole files that users name, read with a limit.
//
// Thread rule: safe everywhere.
#pragma once

#include <cstddef>
#include <string>

#include "base/status.h"

namespace shoal::cli {

// kRequest with the path where it cannot be read or has more than bytes_max.
Result<std::string> read_file(const std::string& path, size_t bytes_max);

// kRequest with the path where it cannot be written. A file that is there stays as it is, another
// one is made, empty.
Status check_writable(const std::string& path);

// Everything up to the end of standard input.
Result<std::string> read_standard_input(size_t bytes_max);

}  // namespace shoal::cli

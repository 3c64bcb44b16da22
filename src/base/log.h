// Logging: LOG(info, "node {} joined", name), formatted by fmt, written by spdlog to standard
// error.
//
// The default level is warn; SHOAL_LOG=trace|debug|info|warn|error|off or set_log_level changes it.
// Prompts and outputs are never logged. Thread rule: safe from any thread.
#pragma once

#include <spdlog/spdlog.h>

#include <string_view>

namespace shoal {

// Sets the level and format once at start; reads SHOAL_LOG. `who` (such as "rank 1") is put in
// every line. An unknown level in SHOAL_LOG is reported and ignored.
void init_logging(std::string_view who);

}  // namespace shoal

#define LOG(level, ...) ::spdlog::level(__VA_ARGS__)

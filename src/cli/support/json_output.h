// JSON as commands print it with --json: one object, two spaces of indentation, always valid.
//
// Thread rule: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "runtime/engine.h"

namespace shoal::cli {

// Keys in the order in which they were added.
using Json = nlohmann::ordered_json;

// Bytes that are no UTF-8 become U+FFFD. Ends with a newline.
std::string to_text(const Json& json);

struct Speed {
  uint64_t tokens = 0;
  double seconds = 0;
};
double tokens_per_second(const Speed& speed);
// {"tokens", "seconds", "tokens_per_second"}
Json to_json(const Speed& speed);
// {"operations", "bytes", "seconds"}
Json to_json(const collective::Counters& counters);

}  // namespace shoal::cli

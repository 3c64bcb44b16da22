// What the answers of every API are written with: JSON as text and as events, names, reasons.
//
// Thread rule: pure functions, and random_id() from any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "server/generate/generation.h"

namespace shoal::server {

// Keys in the order in which the documentation has them.
using OrderedJson = nlohmann::ordered_json;

// A new name for an answer: the prefix and 24 random hexadecimal digits.
std::string random_id(std::string_view prefix);

// One event of a stream of server-sent events.
std::string to_event(const OrderedJson& json);
std::string to_text(const OrderedJson& json);

// "stop" or "length".
std::string_view finish_reason_name(FinishReason reason);

}  // namespace shoal::server

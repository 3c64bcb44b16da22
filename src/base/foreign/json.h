// Bounded JSON for the small files beside weights: settings, tables of tokens, the index of shards.
//
// The library copies and compares values recursively, so depth is bounded before anything is built.
// Its exceptions stay inside. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace shoal {

inline constexpr int kJsonDepthMax = 32;
inline constexpr size_t kJsonFileBytesMax = size_t{64} << 20;

// kRequest naming `name` and the byte where the text is no JSON, nests deeper than kJsonDepthMax or
// has a key twice in one object.
Status check_json(std::string_view text, std::string_view name);
// The value of a text that passes check_json.
Result<nlohmann::json> parse_json(std::string_view text, std::string_view name);
// The same for a file of at most kJsonFileBytesMax.
Result<nlohmann::json> read_json_file(const std::string& path);

}  // namespace shoal

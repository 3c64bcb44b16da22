// raw_json: the text of a value inside a JSON text, its keys in the order that the client gave.
//
// Json sorts keys, since foreign objects may be large; where their order means something (a
// schema's properties, which an answer follows), the text is what counts. Thread rule: pure
// functions.
#pragma once

#include <optional>
#include <string_view>

namespace shoal::server {

// Where `pointer` leads in `text`, which is valid JSON: "/response_format/json_schema/schema",
// "/tools/0/function/parameters"; names without "~" and "/". Of equal keys the last one counts, as
// it does with Json. None: nothing is there. Takes a time that grows with the text.
std::optional<std::string_view> raw_json(std::string_view text, std::string_view pointer);

}  // namespace shoal::server

// raw_json: the text of a value inside a JSON text, its keys in the order that the client gave.
//
// Json sorts keys, since foreign objects may be large; where their order means something (a
// schema's properties, which an answer follows), the text is what counts. Thread rule: pure
// functions.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::server {

// Where `pointer` leads in `text`, which is valid JSON: "/response_format/json_schema/schema",
// "/tools/0/function/parameters"; names without "~" and "/". Of equal keys the last one counts, as
// it does with Json. None: nothing is there. Takes a time that grows with the text.
std::optional<std::string_view> raw_json(std::string_view text, std::string_view pointer);
// The member of an object; empty where there is none.
std::string_view raw_member(std::string_view object, std::string_view name);
// The items of a list; none where it is no list.
std::vector<std::string_view> raw_items(std::string_view list);
// One of them; empty where there are fewer.
inline std::string_view item_of(const std::vector<std::string_view>& items, size_t index) {
  return index < items.size() ? items[index] : std::string_view();
}
// The same JSON on one line, with ", " and ": " between its parts, as Python's json.dumps has it.
std::string on_one_line(std::string_view json);

}  // namespace shoal::server

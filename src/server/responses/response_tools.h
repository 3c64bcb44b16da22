// Tools as requests to the Responses API have them: functions, and what of them may be called.
//
// Thread rule: pure function.
#pragma once

#include <string_view>

#include "server/api/fields.h"
#include "server/tools/tool_options.h"

namespace shoal::server {

// The fields "tools": [{"type": "function", "name", "description", "parameters", "strict"}],
// "parallel_tool_calls" and "tool_choice": a word, {"type": "function", "name"}, or {"type":
// "allowed_tools", "mode", "tools"}, which leaves no other tool than these. body: the request as it
// was written. Errors go to `fields`.
void read_response_tools(Fields* fields, std::string_view body, ToolOptions* tools);

}  // namespace shoal::server

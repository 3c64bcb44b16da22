// Tools as OpenAI's and Ollama's requests have them, read and checked; and what a function may be,
// for all APIs.
//
// Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>

#include "server/api/fields.h"
#include "server/tools/tool_options.h"

namespace shoal::server {

// The field "tools": [{"type": "function", "function": {"name", "description", "parameters",
// "strict"}}]. body: the request as it was written.
void read_tools(Fields* fields, std::string_view body, ToolOptions* tools);
// The fields "tool_choice" and "parallel_tool_calls", after the tools.
void read_tool_choice(Fields* fields, ToolOptions* tools);

// Adds a function whose name and parameters are fields of `function`; an error where they are none,
// or where there is one of that name. False: there was an error.
bool add_tool(Fields* function, std::string_view parameters_name, Tool tool, ToolOptions* tools);
// Makes the answer one call of this function; fails where there is no such function.
void choose_tool(Fields* choice, std::string_view name_field, ToolOptions* tools);

}  // namespace shoal::server

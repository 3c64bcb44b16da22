// Tools as OpenAI's and Ollama's requests have them, read and checked; and what a function may be,
// for all APIs.
//
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "server/api/fields.h"
#include "server/tools/tool_options.h"

namespace shoal::server {

// The field "tools": [{"type": "function", "function": {"name", "description", "parameters",
// "strict"}}]. body: the request as it was written.
void read_tools(Fields* fields, std::string_view body, ToolOptions* tools);
// The fields "tool_choice" and "parallel_tool_calls", after the tools; a choice that is an object
// is
// {"type": "function", "function": {"name"}}.
void read_tool_choice(Fields* fields, ToolOptions* tools);

// The same lists and words where an API has another form of a tool, or of a choice that is an
// object. raw: the tool as it was written.
using ReadTool = std::function<void(Fields* tool, std::string_view raw, ToolOptions* tools)>;
void read_tool_list(Fields* fields, std::string_view body, const ReadTool& read,
                    ToolOptions* tools);
using ReadToolChoice = std::function<void(Fields* choice, ToolOptions* tools)>;
void read_tool_choice(Fields* fields, const ReadToolChoice& read, ToolOptions* tools);

// A function as OpenAI's chats define it, of its parts as they were written; without those that are
// empty.
struct RawFunction {
  std::string_view name;
  std::string_view description;
  std::string_view parameters;
};
std::string tool_definition(const RawFunction& function);

// Adds a function whose name and parameters are fields of `function`; an error where they are none,
// or where there is one of that name. False: there was an error.
bool add_tool(Fields* function, std::string_view parameters_name, Tool tool, ToolOptions* tools);
// The name of one of the tools in this field; an error and "" where it names none.
std::string tool_name(Fields* fields, std::string_view name_field, const ToolOptions& tools);
// Makes the answer one call of this function; fails where there is no such function.
void choose_tool(Fields* choice, std::string_view name_field, ToolOptions* tools);

}  // namespace shoal::server

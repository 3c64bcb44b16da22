#include "server/responses/response_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "server/api/raw_json.h"
#include "server/tools/tool_fields.h"

namespace shoal::server {
namespace {

// What to do about a tool of this type. Clients such as Codex offer some by themselves, which only
// their settings end, and show their users what is said here.
std::string_view remedy(std::string_view type) {
  if (type.starts_with("web_search")) {
    return "it runs at OpenAI's own; turn it off in the client (Codex: web_search = \"disabled\" "
           "at the top of config.toml)";
  }
  if (type == "image_generation") {
    return "it runs at OpenAI's own; turn it off in the client (Codex: image_generation = false "
           "under [features] in config.toml)";
  }
  if (type == "namespace") return "offer its functions one by one";
  if (type == "custom") return "offer a function that takes one string";
  return "offer a function, and send what it gives as function_call_output";
}

bool is_function(Fields* tool) {
  const auto type = tool->text("type");
  if (type == "function") return true;
  const std::string other = type.value_or("another type").substr(0, 64);
  tool->fail(ApiError{.message = fmt::format("{}: {} is not served: {}", tool->path_of("type"),
                                             other, remedy(other)),
                      .param = tool->path_of("type"),
                      .code = "unsupported_parameter"});
  return false;
}

void read_function(Fields* tool, std::string_view raw, ToolOptions* tools) {
  if (!is_function(tool)) return;
  const bool is_described = tool->text("description").has_value();
  tool->refuse_unless("async", {false}, "is not served; leave it out");
  tool->refuse_unless("defer_loading", {false}, "is not served: the model is told of all tools");
  tool->refuse_unless("allowed_callers", {Json::array({"direct"})},
                      "only [\"direct\"] is served: no program runs here");
  tool->refuse("output_schema", "is not served; say it in the description");
  Tool function{.name = {}, .definition = {}, .parameters = {}};
  function.is_strict = tool->boolean("strict").value_or(false);
  if (tool->object("parameters") != nullptr) function.parameters = raw_member(raw, "parameters");
  function.definition = tool_definition(
      {.name = raw_member(raw, "name"),
       .description = is_described ? raw_member(raw, "description") : std::string_view(),
       .parameters = function.parameters});
  (void)add_tool(tool, "parameters", std::move(function), tools);
}

// {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]}
void read_allowed(Fields* choice, ToolOptions* tools) {
  const auto mode = choice->choice("mode", {"auto", "required"});
  if (!mode) choice->fail("mode", "must be one of: auto, required");
  const Json* list = choice->array("tools");
  if (list == nullptr || list->empty()) choice->fail("tools", "must be a list of functions");
  std::set<std::string> allowed;
  if (choice->has_failed()) return;
  choice->each_object("tools", *list, "must be a list of objects", [&](Fields* tool, size_t) {
    if (is_function(tool)) allowed.insert(tool_name(tool, "name", *tools));
  });
  if (choice->has_failed()) return;
  std::erase_if(tools->tools, [&](const Tool& tool) { return !allowed.contains(tool.name); });
  if (mode == "required") tools->choice = ToolChoice::kRequired;
}

void read_choice(Fields* choice, ToolOptions* tools) {
  const auto type = choice->text("type");
  if (type == "function") {
    choose_tool(choice, "name", tools);
  } else if (type == "allowed_tools") {
    read_allowed(choice, tools);
  } else {
    choice->fail("type", "must be \"function\" or \"allowed_tools\"; no other tools are served");
  }
}

}  // namespace

void read_response_tools(Fields* fields, std::string_view body, ToolOptions* tools) {
  read_tool_list(fields, body, read_function, tools);
  read_tool_choice(fields, read_choice, tools);
}

}  // namespace shoal::server

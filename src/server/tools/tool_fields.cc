#include "server/tools/tool_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "server/api/raw_json.h"

namespace shoal::server {
namespace {

constexpr size_t kNameBytesMax = 128;
// JSON schema of a function without parameters.
constexpr std::string_view kNoParameters = R"({"type": "object", "properties": {}})";

bool is_function_name(std::string_view name) {
  const auto is_good = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= kNameBytesMax && std::ranges::all_of(name, is_good);
}

bool is_type_name(const Json& type) {
  constexpr std::array<std::string_view, 7> kTypes = {"object",  "array",   "string", "number",
                                                      "integer", "boolean", "null"};
  return type.is_string() &&
         std::ranges::find(kTypes, type.get_ref<const std::string&>()) != kTypes.end();
}

// What is wrong with a schema's shape, "" for nothing. Deeper than the form of its keywords it is
// looked at where a grammar is made of it.
std::string schema_fault(const Json& schema, const std::string& path) {
  if (schema.is_boolean()) return "";
  if (!schema.is_object()) return path + " must be a schema";
  if (const auto type = schema.find("type"); type != schema.end()) {
    const bool is_good =
        type->is_array() ? std::ranges::all_of(*type, is_type_name) : is_type_name(*type);
    if (!is_good) return path + ".type is no type of JSON";
  }
  for (const char* key : {"properties", "$defs", "definitions"}) {
    const auto members = schema.find(key);
    if (members == schema.end()) continue;
    if (!members->is_object()) return fmt::format("{}.{} must be an object", path, key);
    for (const auto& [name, member] : members->items()) {
      auto fault = schema_fault(member, fmt::format("{}.{}.{}", path, key, name.substr(0, 64)));
      if (!fault.empty()) return fault;
    }
  }
  for (const char* key : {"anyOf", "oneOf", "allOf"}) {
    const auto list = schema.find(key);
    if (list == schema.end()) continue;
    if (!list->is_array() || list->empty()) {
      return fmt::format("{}.{} must be a list of schemas", path, key);
    }
    for (const Json& item : *list) {
      auto fault = schema_fault(item, fmt::format("{}.{}", path, key));
      if (!fault.empty()) return fault;
    }
  }
  const auto items = schema.find("items");
  if (items == schema.end() || items->is_array()) return "";
  return schema_fault(*items, path + ".items");
}

void read_tool(Fields* entry, std::string_view definition, ToolOptions* tools) {
  const auto type = entry->text("type");
  if (type && *type != "function") {
    entry->fail(
        ApiError{.message = fmt::format("{}: only functions are served", entry->path_of("type")),
                 .param = entry->path_of("type"),
                 .code = "unsupported_parameter"});
  }
  const Json* json = entry->object("function");
  if (json == nullptr) {
    entry->fail("function", "must be an object");
    return;
  }
  Fields function(*json, entry->path_of("function"));
  (void)function.text("description");
  Tool tool{.name = {}, .definition = std::string(definition), .parameters = {}};
  tool.is_strict = function.boolean("strict").value_or(false);
  tool.parameters = raw_member(raw_member(definition, "function"), "parameters");
  (void)add_tool(&function, "parameters", std::move(tool), tools);
  if (auto error = function.finish()) entry->fail(std::move(*error));
}

void read_named_choice(Fields* choice, ToolOptions* tools) {
  if (choice->text("type") != "function") {
    choice->fail("type", "must be \"function\"; other kinds of choice are not served");
  }
  const Json* json = choice->object("function");
  if (json == nullptr) {
    choice->fail("function", "must be an object");
    return;
  }
  Fields function(*json, choice->path_of("function"));
  choose_tool(&function, "name", tools);
  if (auto error = function.finish()) choice->fail(std::move(*error));
}

}  // namespace

bool add_tool(Fields* function, std::string_view parameters_name, Tool tool, ToolOptions* tools) {
  const auto name = function->text("name");
  if (!name || !is_function_name(*name)) {
    function->fail("name", fmt::format("must be 1 to {} letters, digits, _ and -", kNameBytesMax));
    return false;
  }
  if (std::ranges::find(tools->tools, *name, &Tool::name) != tools->tools.end()) {
    function->fail("name", "is another function's name too");
    return false;
  }
  const Json* parameters = function->object(parameters_name);
  if (function->has_failed()) return false;
  if (parameters == nullptr) {
    tool.parameters = kNoParameters;
  } else if (const auto type = parameters->find("type");
             type != parameters->end() && *type != "object") {
    function->fail(parameters_name, "must be a schema of the type object");
  } else if (const auto fault = schema_fault(*parameters, "it"); !fault.empty()) {
    function->fail(parameters_name, "is no JSON schema: " + fault);
  }
  tool.name = *name;
  tools->tools.push_back(std::move(tool));
  return !function->has_failed();
}

std::string tool_name(Fields* fields, std::string_view name_field, const ToolOptions& tools) {
  auto name = fields->text(name_field);
  if (!name) {
    fields->fail(name_field, "must be a function's name");
    return "";
  }
  if (std::ranges::find(tools.tools, *name, &Tool::name) == tools.tools.end()) {
    fields->fail(name_field, "none of the tools has this name");
    return "";
  }
  return std::move(*name);
}

void choose_tool(Fields* choice, std::string_view name_field, ToolOptions* tools) {
  auto name = tool_name(choice, name_field, *tools);
  if (name.empty()) return;
  tools->choice = ToolChoice::kNamed;
  tools->named = std::move(name);
}

void read_tool_list(Fields* fields, std::string_view body, const ReadTool& read,
                    ToolOptions* tools) {
  const Json* list = fields->array("tools");
  if (list == nullptr) return;
  if (list->size() > kToolsMax) {
    fields->fail("tools", fmt::format("must be at most {}", kToolsMax));
    return;
  }
  const auto texts = raw_items(raw_member(body, "tools"));
  fields->each_object("tools", *list, "must be a list of objects",
                      [&](Fields* tool, size_t i) { read(tool, item_of(texts, i), tools); });
}

void read_tools(Fields* fields, std::string_view body, ToolOptions* tools) {
  read_tool_list(fields, body, read_tool, tools);
}

std::string tool_definition(const RawFunction& function) {
  std::string text =
      fmt::format(R"({{"type": "function", "function": {{"name": {})", function.name);
  if (!function.description.empty()) {
    text += fmt::format(R"(, "description": {})", function.description);
  }
  if (!function.parameters.empty()) {
    text += fmt::format(R"(, "parameters": {})", function.parameters);
  }
  return text + "}}";
}

void read_tool_choice(Fields* fields, const ReadToolChoice& read, ToolOptions* tools) {
  tools->is_parallel = fields->boolean("parallel_tool_calls").value_or(true);
  const Json* value = fields->any("tool_choice");
  if (value == nullptr || fields->has_failed()) return;
  if (value->is_string()) {
    const auto word = fields->choice("tool_choice", {"auto", "none", "required"});
    if (word == "none") tools->choice = ToolChoice::kNone;
    if (word == "required") tools->choice = ToolChoice::kRequired;
  } else if (value->is_object()) {
    Fields choice(*value, fields->path_of("tool_choice"));
    read(&choice, tools);
    if (auto error = choice.finish()) fields->fail(std::move(*error));
  } else {
    fields->fail("tool_choice",
                 "must be \"auto\", \"none\", \"required\", or an object that names a function");
  }
  if (tools->choice == ToolChoice::kRequired && tools->tools.empty()) {
    fields->fail("tool_choice", "there are no tools to call");
  }
}

void read_tool_choice(Fields* fields, ToolOptions* tools) {
  read_tool_choice(fields, read_named_choice, tools);
}

}  // namespace shoal::server

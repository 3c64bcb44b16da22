#include "server/anthropic/message_request.h"

#include <fmt/format.h>

#include <utility>

#include "server/anthropic/conversation.h"
#include "server/api/raw_json.h"
#include "server/generate/answer_format.h"
#include "server/tools/tool_fields.h"

namespace shoal::server {
namespace {

// tools[i]: {"name", "description", "input_schema"}; raw: as it was written.
void read_tool(Fields* entry, std::string_view raw, ToolOptions* tools) {
  const auto type = entry->text("type");
  if (type && *type != "custom") {
    entry->fail(ApiError{.message = fmt::format("{}: only tools of the client's own are served",
                                                entry->path_of("type")),
                         .param = entry->path_of("type"),
                         .code = "unsupported_parameter"});
  }
  (void)entry->text("description");
  (void)entry->object("cache_control");
  (void)entry->boolean("eager_input_streaming");  // arguments are streamed as they come
  entry->refuse_unless("defer_loading", {false}, "is not served: the model is told of all tools");
  entry->refuse_unless("allowed_callers", {Json::array({"direct"})},
                       "only [\"direct\"] is served: no program runs here");
  entry->refuse_unless("input_examples", {Json::array()},
                       "is not served; say them in the description");
  if (entry->object("input_schema") == nullptr) entry->fail("input_schema", "must be an object");
  Tool tool{.name = {}, .definition = {}, .parameters = {}};
  tool.is_strict = entry->boolean("strict").value_or(false);
  tool.parameters = raw_member(raw, "input_schema");
  tool.definition = tool_definition({.name = raw_member(raw, "name"),
                                     .description = raw_member(raw, "description"),
                                     .parameters = tool.parameters});
  (void)add_tool(entry, "input_schema", std::move(tool), tools);
}

void read_choice(Fields* fields, ToolOptions* tools) {
  const Json* value = fields->object("tool_choice");
  if (value == nullptr || fields->has_failed()) return;
  Fields choice(*value, "tool_choice");
  const auto type = choice.choice("type", {"auto", "any", "tool", "none"});
  if (!type) choice.fail("type", "must be one of: auto, any, tool, none");
  tools->is_parallel = !choice.boolean("disable_parallel_tool_use").value_or(false);
  if (type == "none") tools->choice = ToolChoice::kNone;
  if (type == "any") tools->choice = ToolChoice::kRequired;
  if (type == "tool") choose_tool(&choice, "name", tools);
  if (tools->are_forced() && tools->tools.empty()) {
    choice.fail("type", "there are no tools to call");
  }
  if (auto error = choice.finish()) fields->fail(std::move(*error));
}

void read_thinking(Fields* fields, MessageRequest* request) {
  request->input.thinking = {.is_wanted = false, .param = "thinking"};
  const Json* value = fields->object("thinking");
  if (value == nullptr) return;
  Fields thinking(*value, "thinking");
  const auto type = thinking.choice("type", {"enabled", "adaptive", "disabled"});
  if (!type) thinking.fail("type", "must be one of: enabled, adaptive, disabled");
  // Checked, and no bound: max_tokens is one for thoughts and answer together.
  (void)thinking.integer("budget_tokens", {.min = 1024, .max = INT32_MAX});
  const auto display = thinking.choice("display", {"summarized", "omitted"});
  const bool is_wanted = type != "disabled";
  request->shows_thoughts = is_wanted && display != "omitted";
  request->input.thinking.is_wanted = is_wanted;
  request->input.thinking.is_needed = type == "enabled";
  if (auto error = thinking.finish()) fields->fail(std::move(*error));
}

// What a prompt is made of, and what could change it and is not served.
void read_prompt(Fields* fields, std::string_view body, MessageRequest* request) {
  if (auto model = fields->text("model")) {
    request->model = std::move(*model);
  } else {
    fields->fail("model", "must be a string: GET /v1/models has the names");
  }
  request->input.template_input = Json::object({{"messages", read_conversation(fields, body)}});
  read_tool_list(fields, body, read_tool, &request->input.tools);
  read_choice(fields, &request->input.tools);
  read_thinking(fields, request);
  fields->refuse_unless("mcp_servers", {Json::array()}, "is not served");
  // Claude Code sends it by itself; these forms take nothing away.
  const Json keeps_all = {{"type", "clear_thinking_20251015"}, {"keep", "all"}};
  fields->refuse_unless("context_management",
                        {Json::object(), Json::object({{"edits", Json::array()}}),
                         Json::object({{"edits", Json::array({keeps_all})}})},
                        "is not served: nothing is taken away from a conversation");
  (void)fields->object("cache_control");  // what is alike is cached without being asked for
  fields->refuse_unless("speed", {"standard"}, "is not served: there is one speed here");
}

void read_stops(Fields* fields, std::vector<std::string>* stops) {
  const Json* list = fields->array("stop_sequences");
  if (list == nullptr) return;
  if (list->size() > runtime::StopMatcher::kStopsMax) {
    fields->fail("stop_sequences",
                 fmt::format("must have at most {}", runtime::StopMatcher::kStopsMax));
    return;
  }
  for (const Json& stop : *list) {
    const std::string* text = stop.get_ptr<const std::string*>();
    const bool is_good =
        text != nullptr && !text->empty() && text->size() <= runtime::StopMatcher::kStopBytesMax;
    if (!is_good) {
      fields->fail("stop_sequences", fmt::format("must be strings of 1 to {} bytes",
                                                 runtime::StopMatcher::kStopBytesMax));
      return;
    }
    stops->push_back(*text);
  }
}

void read_answer(Fields* fields, GenerationOptions* options) {
  const auto tokens = fields->integer("max_tokens", {.min = 1, .max = INT32_MAX});
  if (!tokens) fields->fail("max_tokens", "must be an integer from 1");
  options->tokens_max = static_cast<uint32_t>(tokens.value_or(1));
  runtime::SamplingParams& sampling = options->sampling;
  if (const auto value = fields->number("temperature", {.max = 1})) {
    sampling.temperature = static_cast<float>(*value);
  }
  if (const auto value = fields->number("top_p", {.max = 1})) {
    sampling.top_p = static_cast<float>(*value);
  }
  if (const auto value = fields->integer("top_k", {.max = INT32_MAX})) {
    sampling.top_k = static_cast<int32_t>(*value);
  }
  settle_top_p(&sampling);
  read_stops(fields, &options->stops);
  options->is_stream = fields->boolean("stream").value_or(false);
  (void)fields->object("metadata");  // names the client's own user: nothing here depends on it
  fields->refuse_unless("service_tier", {"auto", "standard_only"}, "is not served");
  fields->refuse("container", "is not served");
  fields->refuse("inference_geo", "is not served");
  fields->refuse("diagnostics", "is not served; leave it out");
}

// A last message of the assistant is the beginning of the answer, which the templates do not take
// up.
void refuse_begun_answer(const Json& body, Fields* fields) {
  if (fields->has_failed() || body["messages"].back()["role"] != "assistant") return;
  fields->fail("messages", "must end with a message of the user: begun answers are not continued");
}

// Takes output_config.effort out of the body: the rest of output_config is the answer's form.
ApiResult<std::optional<std::string>> take_effort(Json* body) {
  const auto config = body->find("output_config");
  if (config == body->end() || !config->is_object()) return std::optional<std::string>();
  Fields fields(*config, "output_config");
  auto effort = fields.choice("effort", {"low", "medium", "high", "xhigh", "max"});
  if (fields.has_failed()) return *fields.finish();
  config->erase("effort");
  return effort;
}

ApiResult<MessageRequest> parse(std::string_view body, bool has_answer) {
  auto json = parse_body(body);
  if (!json.is_ok()) return json.error();
  auto effort = take_effort(&*json);
  if (!effort.is_ok()) return effort.error();
  Fields fields(*json);
  MessageRequest request;
  request.effort = std::move(*effort);
  read_prompt(&fields, body, &request);
  request.options.grammar = read_anthropic_format(&fields, body);
  if (has_answer) {
    read_answer(&fields, &request.options);
    refuse_begun_answer(*json, &fields);
  }
  if (auto error = fields.finish()) return std::move(*error);
  return request;
}

}  // namespace

ApiResult<MessageRequest> parse_message_request(std::string_view body) { return parse(body, true); }
ApiResult<MessageRequest> parse_count_request(std::string_view body) { return parse(body, false); }

}  // namespace shoal::server

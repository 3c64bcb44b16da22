#include "server/anthropic/message_request.h"

#include <fmt/format.h>

#include <utility>

#include "server/generate/answer_format.h"

namespace shoal::server {
namespace {

// A text, or a list of blocks of text, which are joined by a line break.
std::string read_text(Fields* owner, std::string_view name) {
  const Json* value = owner->any(name);
  if (value != nullptr && value->is_string()) return value->get<std::string>();
  std::string text;
  if (value == nullptr || !value->is_array() || value->empty()) {
    owner->fail(name, "must be a string or a list of blocks of text");
    return text;
  }
  for (size_t i = 0; i < value->size() && !owner->has_failed(); ++i) {
    const std::string path = fmt::format("{}[{}]", owner->path_of(name), i);
    if (!(*value)[i].is_object()) {
      owner->fail(name, "its blocks must be objects");
      return text;
    }
    Fields block((*value)[i], path);
    const auto type = block.text("type");
    if (type && *type != "text") {
      block.fail(ApiError{.message = fmt::format("{}.type: this model reads text only, no {}", path,
                                                 type->substr(0, 64)),
                          .param = path + ".type",
                          .code = "unsupported_content"});
    }
    (void)block.object("cache_control");  // what is alike is cached without being asked for
    block.refuse_unless("citations", {Json::array()}, "is not served");
    if (const auto part = block.text("text")) {
      text += (i == 0 ? "" : "\n") + *part;
    } else {
      block.fail("text", "must be a string");
    }
    if (auto error = block.finish()) owner->fail(std::move(*error));
  }
  return text;
}

Json message(std::string_view role, std::string content) {
  return Json::object({{"role", role}, {"content", std::move(content)}});
}

Json read_conversation(Fields* fields) {
  Json out = Json::array();
  if (fields->any("system") != nullptr) {
    out.push_back(message("system", read_text(fields, "system")));
  }
  const Json* messages = fields->array("messages");
  if (messages == nullptr || messages->empty()) {
    fields->fail("messages", "must be a list of at least one message");
    return out;
  }
  for (size_t i = 0; i < messages->size() && !fields->has_failed(); ++i) {
    const std::string path = fmt::format("messages[{}]", i);
    if (!(*messages)[i].is_object()) {
      fields->fail(ApiError{.message = path + ": must be an object", .param = path});
      return out;
    }
    Fields entry((*messages)[i], path);
    const auto role = entry.choice("role", {"user", "assistant"});
    if (!role) entry.fail("role", "must be one of: user, assistant");
    out.push_back(message(role.value_or(""), read_text(&entry, "content")));
    if (auto error = entry.finish()) fields->fail(std::move(*error));
  }
  return out;
}

// What a prompt is made of, and what could change it and is not served.
void read_prompt(Fields* fields, MessageRequest* request) {
  if (auto model = fields->text("model")) {
    request->model = std::move(*model);
  } else {
    fields->fail("model", "must be a string: GET /v1/models has the names");
  }
  request->template_input = Json::object({{"messages", read_conversation(fields)}});
  constexpr std::string_view kNoTools = "tools are not served yet";
  fields->refuse_unless("tools", {Json::array()}, kNoTools);
  fields->refuse_unless("tool_choice",
                        {Json::object({{"type", "auto"}}), Json::object({{"type", "none"}})},
                        kNoTools);
  fields->refuse_unless("thinking", {Json::object({{"type", "disabled"}})},
                        "only {\"type\": \"disabled\"} is served");
  fields->refuse_unless("mcp_servers", {Json::array()}, "is not served");
  fields->refuse("context_management", "is not served");
  fields->refuse("cache_control", "is not served here: what is alike is cached without it");
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
}

ApiResult<MessageRequest> parse(std::string_view body, bool has_answer) {
  auto json = parse_body(body);
  if (!json.is_ok()) return json.error();
  Fields fields(*json);
  MessageRequest request;
  read_prompt(&fields, &request);
  request.options.grammar = read_anthropic_format(&fields, body);
  if (has_answer) read_answer(&fields, &request.options);
  if (auto error = fields.finish()) return std::move(*error);
  return request;
}

}  // namespace

ApiResult<MessageRequest> parse_message_request(std::string_view body) { return parse(body, true); }
ApiResult<MessageRequest> parse_count_request(std::string_view body) { return parse(body, false); }

}  // namespace shoal::server

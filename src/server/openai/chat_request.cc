#include "server/openai/chat_request.h"

#include <fmt/format.h>

#include <utility>

#include "server/generate/answer_format.h"
#include "server/tools/tool_fields.h"

namespace shoal::server {
namespace {

constexpr size_t kMessagesMax = 100'000;

// Text, or a list of parts of text. Another type of part is refused by its name.
void read_content_parts(Fields* message, const Json& parts) {
  if (parts.empty()) message->fail("content", "must have at least one part");
  message->each_object("content", parts, "its parts must be objects", [](Fields* part, size_t) {
    const auto type = part->text("type");
    if (type && *type != "text") refuse_content(part, *type);
    if (!part->text("text")) part->fail("text", "must be a string");
  });
}

void read_content(Fields* message, bool may_be_absent, Json* out) {
  const Json* content = message->any("content");
  if (content == nullptr) {
    if (!may_be_absent) message->fail("content", "must be a string or a list of parts of text");
    (*out)["content"] = nullptr;
    return;
  }
  if (content->is_array()) {
    read_content_parts(message, *content);
  } else if (!content->is_string()) {
    message->fail("content", "must be a string or a list of parts of text");
  }
  (*out)["content"] = *content;
}

// Calls of tools that an earlier answer made.
void read_tool_calls(Fields* message, Json* out) {
  const Json* calls = message->array("tool_calls");
  if (calls == nullptr || calls->empty()) return;
  message->each_object("tool_calls", *calls, "must be a list of objects", [](Fields* call, size_t) {
    (void)call->text("id");
    (void)call->integer("index", {});
    (void)call->choice("type", {"function"});
    if (const Json* function = call->object("function")) {
      Fields parts(*function, call->path_of("function"));
      if (!parts.text("name")) parts.fail("name", "must be a string");
      if (!parts.text("arguments")) parts.fail("arguments", "must be a string");
      if (auto error = parts.finish()) call->fail(std::move(*error));
    } else {
      call->fail("function", "must be an object");
    }
  });
  (*out)["tool_calls"] = *calls;
}

void read_message_text(Fields* message, std::string_view name, Json* out) {
  if (auto text = message->text(name)) (*out)[std::string(name)] = std::move(*text);
}

Json read_message(const Json& json, const std::string& path, Fields* request) {
  Json out = Json::object();
  if (!json.is_object()) {
    request->fail(ApiError{.message = path + ": must be an object", .param = path});
    return out;
  }
  Fields message(json, path);
  auto role = message.choice("role", {"system", "developer", "user", "assistant", "tool"});
  if (!role) message.fail("role", "must be one of: system, developer, user, assistant, tool");
  // Templates know the older word for the same thing.
  out["role"] = role == "developer" ? "system" : role.value_or("");
  const bool is_assistant = role == "assistant";
  const Json* calls = is_assistant ? message.any("tool_calls") : nullptr;
  read_content(&message, calls != nullptr && calls->is_array() && !calls->empty(), &out);
  read_message_text(&message, "name", &out);
  if (is_assistant) {
    read_tool_calls(&message, &out);
    read_message_text(&message, "reasoning_content", &out);
    // What the official client sends back with an answer of its own, empty.
    message.refuse("refusal", "is not served");
    message.refuse("audio", "this model reads text only");
    message.refuse("function_call", "is not served; use tool_calls");
    message.refuse_unless("annotations", {Json::array()}, "is not served");
  }
  if (role == "tool") {
    read_message_text(&message, "tool_call_id", &out);
    if (!out.contains("tool_call_id")) message.fail("tool_call_id", "must be a string");
  }
  if (auto error = message.finish()) request->fail(std::move(*error));
  return out;
}

// What the API documents and this server does not do: each by its name, with a way out.
void refuse_unserved(Fields* fields) {
  fields->refuse("functions", "is not served; use tools");
  fields->refuse_unless("function_call", {"none", "auto"}, "is not served; use tool_choice");
  fields->refuse_unless("modalities", {Json::array({"text"})}, "only [\"text\"] is served");
  fields->refuse("audio", "only text is served");
  fields->refuse("prediction", "is not served");
  fields->refuse("web_search_options", "is not served");
  fields->refuse_unless("verbosity", {"medium"}, "is not served; ask for it in a message");
  fields->refuse_unless("store", {false}, "answers are not stored here");
  fields->refuse_unless("service_tier", {"auto", "default"}, "only auto and default are served");
  fields->refuse("prompt_cache_retention", "is not served: the cache keeps what it has room for");
}

// Labels that say who asks, or what for: nothing here depends on them.
void read_labels(Fields* fields) {
  (void)fields->text("safety_identifier");
  (void)fields->text("prompt_cache_key");
  const Json* metadata = fields->object("metadata");
  if (metadata == nullptr) return;
  if (metadata->size() > 16) fields->fail("metadata", "must have at most 16 entries");
  for (const auto& [key, value] : metadata->items()) {
    if (!value.is_string()) fields->fail("metadata", "its values must be strings");
  }
}

void read_logprobs(Fields* fields, GenerationOptions* options) {
  options->wants_logprobs = fields->boolean("logprobs").value_or(false);
  const auto top =
      fields->integer("top_logprobs", {.max = runtime::GenerationRequest::kLogprobsTopMax});
  if (top && !options->wants_logprobs)
    fields->fail("top_logprobs", "goes with logprobs: true only");
  options->logprobs_top = static_cast<uint32_t>(top.value_or(0));
}

void read_tokens_max(Fields* fields, GenerationOptions* options) {
  const IntegerRange range{.min = 1, .max = INT32_MAX};
  const auto current = fields->integer("max_completion_tokens", range);
  const auto older = fields->integer("max_tokens", range);
  if (current && older && *current != *older) {
    fields->fail("max_tokens", "and max_completion_tokens differ; give one of them");
  }
  const auto tokens = current ? current : older;
  if (tokens) options->tokens_max = static_cast<uint32_t>(*tokens);
}

void read_template_input(Fields* fields, Json* input) {
  Json messages = read_messages(fields, "messages");
  *input = Json::object();
  if (const Json* variables = fields->object("chat_template_kwargs")) {
    *input = *variables;
    if (variables->contains("messages") || variables->contains("tools")) {
      fields->fail("chat_template_kwargs", "must not have messages or tools");
    }
  }
  (*input)["messages"] = std::move(messages);
}

}  // namespace

Json read_messages(Fields* fields, std::string_view name) {
  Json out = Json::array();
  const Json* messages = fields->array(name);
  if (messages == nullptr || messages->empty() || messages->size() > kMessagesMax) {
    fields->fail(name, "must be a list of at least one message");
    return out;
  }
  for (size_t i = 0; i < messages->size() && !fields->has_failed(); ++i) {
    out.push_back(
        read_message((*messages)[i], fmt::format("{}[{}]", fields->path_of(name), i), fields));
  }
  return out;
}

ApiResult<ChatRequest> parse_chat_request(std::string_view body) {
  auto json = parse_body(body);
  if (!json.is_ok()) return json.error();
  Fields fields(*json);
  ChatRequest request;
  if (auto model = fields.text("model")) {
    request.model = std::move(*model);
  } else {
    fields.fail("model", "must be a string: GET /v1/models has the names");
  }
  read_template_input(&fields, &request.input.template_input);
  read_tools(&fields, body, &request.input.tools);
  read_tool_choice(&fields, &request.input.tools);
  request.input.thinking = read_effort(&fields, "reasoning_effort");
  read_generation_options(&fields, &request.options);
  read_tokens_max(&fields, &request.options);
  read_logprobs(&fields, &request.options);
  request.options.grammar = read_openai_format(&fields, body);
  read_labels(&fields);
  refuse_unserved(&fields);
  if (auto error = fields.finish()) return std::move(*error);
  return request;
}

}  // namespace shoal::server

#include "server/responses/responses_request.h"

#include <fmt/format.h>

#include <utility>

#include "server/api/raw_json.h"
#include "server/generate/answer_format.h"
#include "server/responses/input_items.h"
#include "server/responses/response_tools.h"

namespace shoal::server {
namespace {

constexpr size_t kMetadataMax = 16;

// JSON as the client wrote it, where there is something else than null.
std::string written(std::string_view json, std::string_view otherwise) {
  const std::string text = on_one_line(json);
  return std::string(text.empty() || text == "null" ? otherwise : text);
}

void read_text(Fields* fields, std::string_view body, ResponsesRequest* request) {
  const std::string_view format = raw_member(raw_member(body, "text"), "format");
  request->echo.text = fmt::format(R"({{"format": {}, "verbosity": "medium"}})",
                                   written(format, R"({"type": "text"})"));
  const Json* value = fields->object("text");
  if (value == nullptr) return;
  Fields text(*value, fields->path_of("text"));
  request->options.grammar = read_responses_format(&text, body);
  text.refuse_unless("verbosity", {"medium"}, "is not served; ask for it in the instructions");
  if (auto error = text.finish()) fields->fail(std::move(*error));
}

void read_tools(Fields* fields, std::string_view body, ResponsesRequest* request) {
  read_response_tools(fields, body, &request->input.tools);
  request->echo.tools = written(raw_member(body, "tools"), "[]");
  request->echo.tool_choice = written(raw_member(body, "tool_choice"), R"("auto")");
  request->echo.fields["parallel_tool_calls"] = request->input.tools.is_parallel;
  fields->refuse("max_tool_calls",
                 "counts calls of tools that run here, and none do; parallel_tool_calls: false is "
                 "for one call at most");
}

// Thoughts are given as they are, so that a summary, where one is wanted if there is one, is not.
void read_reasoning(Fields* fields, ResponsesRequest* request) {
  OrderedJson& echo = request->echo.fields["reasoning"];
  echo = {{"effort", nullptr}, {"summary", nullptr}};
  const Json* value = fields->object("reasoning");
  if (value == nullptr) return;
  Fields reasoning(*value, fields->path_of("reasoning"));
  request->input.thinking = read_effort(&reasoning, "effort");
  if (request->input.thinking.effort) echo["effort"] = *request->input.thinking.effort;
  for (const char* name : {"summary", "generate_summary"}) {
    reasoning.refuse_unless(name, {"auto"}, "is not served: thoughts are given as they are");
  }
  reasoning.refuse_unless("context", {"auto"}, "is not served: send the items that are to count");
  reasoning.refuse_unless("mode", {"standard"}, "is not served; leave it out");
  if (auto error = reasoning.finish()) fields->fail(std::move(*error));
}

void read_stream(Fields* fields, GenerationOptions* options) {
  options->is_stream = fields->boolean("stream").value_or(false);
  const Json* value = fields->object("stream_options");
  if (value == nullptr) return;
  Fields stream(*value, fields->path_of("stream_options"));
  stream.refuse_unless("include_obfuscation", {false}, "is not served; leave it out");
  if (auto error = stream.finish()) fields->fail(std::move(*error));
}

// Log-probabilities come where they are asked for by `include`. What encrypted thoughts are asked
// for, that a conversation goes on without being stored, our reasoning items do by themselves: they
// carry the whole thought.
void read_logprobs(Fields* fields, GenerationOptions* options) {
  const Json* include = fields->array("include");
  for (const Json& name : include != nullptr ? *include : Json::array()) {
    if (name == "message.output_text.logprobs") {
      options->wants_logprobs = true;
    } else if (name != "reasoning.encrypted_content") {
      fields->fail(ApiError{.message = "include: only message.output_text.logprobs and "
                                       "reasoning.encrypted_content are served",
                            .param = "include",
                            .code = "unsupported_parameter"});
    }
  }
  const auto top =
      fields->integer("top_logprobs", {.max = runtime::GenerationRequest::kLogprobsTopMax});
  if (top.value_or(0) > 0 && !options->wants_logprobs) {
    fields->fail("top_logprobs", "goes with include: [\"message.output_text.logprobs\"] only");
  }
  options->logprobs_top = static_cast<uint32_t>(top.value_or(0));
}

void read_metadata(Fields* fields, OrderedJson* echo) {
  (*echo)["metadata"] = OrderedJson::object();
  const Json* metadata = fields->object("metadata");
  if (metadata == nullptr) return;
  if (metadata->size() > kMetadataMax) {
    fields->fail("metadata", fmt::format("must have at most {} entries", kMetadataMax));
    return;
  }
  for (const auto& [key, value] : metadata->items()) {
    if (value.is_string()) {
      (*echo)["metadata"][key] = value.get<std::string>();
    } else {
      fields->fail("metadata", "its values must be strings");
    }
  }
}

// Labels that say who asks, or what for: nothing here depends on them.
void read_labels(Fields* fields, OrderedJson* echo) {
  for (const char* name : {"user", "safety_identifier", "prompt_cache_key"}) {
    if (auto text = fields->text(name)) (*echo)[name] = std::move(*text);
  }
  read_metadata(fields, echo);
}

// What would need an earlier answer, a kept prompt or a later look at this one.
void refuse_stored(Fields* fields) {
  fields->refuse("previous_response_id",
                 "answers are not stored here; send the conversation's items as input");
  fields->refuse("conversation",
                 "conversations are not stored here; send the conversation's items as input");
  fields->refuse("prompt", "prompts are not stored here; use instructions and input");
  fields->refuse_unless("store", {false},
                        "answers are not stored here; leave it out or send false");
  fields->refuse_unless("background", {false}, "answers are not stored here; use stream");
  fields->refuse("background_options", "answers are not stored here; use stream");
}

// What the API documents and this server does not do: each by its name, with a way out.
void refuse_unserved(Fields* fields) {
  fields->refuse_unless("truncation", {"disabled"},
                        "is not served: an input that does not fit is refused; shorten it");
  fields->refuse_unless("service_tier", {"auto", "default"}, "only auto and default are served");
  fields->refuse("prompt_cache_retention", "is not served: the cache keeps what it has room for");
  fields->refuse("prompt_cache_options", "is not served: what is alike is cached without");
  for (const char* name : {"context_management", "moderation", "image", "access_programs"}) {
    fields->refuse(name, "is not served; leave it out");
  }
}

// instructions, then the input. echo: the instructions as they came.
Json read_conversation(Fields* fields, OrderedJson* echo) {
  Json messages = Json::array();
  const auto instructions = fields->text("instructions");
  (*echo)["instructions"] = instructions ? OrderedJson(*instructions) : OrderedJson(nullptr);
  if (instructions && !instructions->empty()) {
    messages.push_back(Json::object({{"role", "system"}, {"content", *instructions}}));
  }
  read_input_items(fields, &messages);
  return messages;
}

void read_sampling(Fields* fields, GenerationOptions* options, OrderedJson* echo) {
  runtime::SamplingParams& sampling = options->sampling;
  const auto temperature = fields->number("temperature", {.max = 2});
  const auto top_p = fields->number("top_p", {.max = 1});
  if (temperature) sampling.temperature = static_cast<float>(*temperature);
  if (top_p) sampling.top_p = static_cast<float>(*top_p);
  settle_top_p(&sampling);
  (*echo)["temperature"] = temperature.value_or(1);
  (*echo)["top_p"] = top_p.value_or(1);
  const auto tokens = fields->integer("max_output_tokens", {.min = 1, .max = INT32_MAX});
  (*echo)["max_output_tokens"] = tokens ? OrderedJson(*tokens) : OrderedJson(nullptr);
  if (tokens) options->tokens_max = static_cast<uint32_t>(*tokens);
}

}  // namespace

ApiResult<ResponsesRequest> parse_responses_request(std::string_view body) {
  auto json = parse_body(body);
  if (!json.is_ok()) return json.error();
  Fields fields(*json);
  ResponsesRequest request;
  if (auto model = fields.text("model")) {
    request.model = std::move(*model);
  } else {
    fields.fail("model", "must be a string: GET /v1/models has the names");
  }
  OrderedJson& echo = request.echo.fields;
  request.input.template_input = Json::object({{"messages", read_conversation(&fields, &echo)}});
  read_tools(&fields, body, &request);
  read_sampling(&fields, &request.options, &echo);
  read_logprobs(&fields, &request.options);
  read_stream(&fields, &request.options);
  read_text(&fields, body, &request);
  read_reasoning(&fields, &request);
  read_labels(&fields, &echo);
  echo["top_logprobs"] = request.options.logprobs_top;
  refuse_stored(&fields);
  refuse_unserved(&fields);
  if (auto error = fields.finish()) return std::move(*error);
  return request;
}

}  // namespace shoal::server

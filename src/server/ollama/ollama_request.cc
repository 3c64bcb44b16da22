#include "server/ollama/ollama_request.h"

#include <fmt/format.h>

#include <utility>

#include "server/api/raw_json.h"
#include "server/generate/answer_format.h"
#include "server/tools/tool_fields.h"

namespace shoal::server {
namespace {

void read_float(Fields* fields, std::string_view name, NumberRange range, float* value) {
  if (const auto number = fields->number(name, range)) *value = static_cast<float>(*number);
}

void read_stops(Fields* fields, std::vector<std::string>* stops) {
  const Json* value = fields->any("stop");
  if (value == nullptr) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  bool is_good = list.size() <= runtime::StopMatcher::kStopsMax;
  for (const Json& stop : list) {
    const std::string* text = stop.get_ptr<const std::string*>();
    is_good = is_good && text != nullptr && !text->empty() &&
              text->size() <= runtime::StopMatcher::kStopBytesMax;
    if (is_good) stops->push_back(*text);
  }
  if (!is_good) {
    fields->fail("stop",
                 fmt::format("must be at most {} strings of 1 to {} bytes",
                             runtime::StopMatcher::kStopsMax, runtime::StopMatcher::kStopBytesMax));
  }
}

// How a model is laid out is said once, when the server starts.
void refuse_layout(Fields* options) {
  for (const char* name : {"num_batch", "num_gpu", "main_gpu", "use_mmap", "use_mlock",
                           "num_thread", "numa", "low_vram", "vocab_only", "f16_kv"}) {
    options->refuse(name, "is decided when the server starts; leave it out");
  }
}

void refuse_other_samplers(Fields* options) {
  options->refuse_unless("mirostat", {0}, "is not served");
  options->refuse("mirostat_tau", "is not served");
  options->refuse("mirostat_eta", "is not served");
  options->refuse_unless("tfs_z", {1, 1.0}, "is not served");
  options->refuse_unless("typical_p", {1, 1.0}, "is not served");
  options->refuse_unless("repeat_last_n", {-1}, "only -1 is served: all of prompt and answer");
  options->refuse_unless("penalize_newline", {true}, "is not served");
  options->refuse_unless("num_keep", {0}, "is not served: what does not fit is refused");
}

}  // namespace

void read_ollama_options(Fields* fields, OllamaRequest* request) {
  runtime::SamplingParams& sampling = request->options.sampling;
  sampling = ollama_sampling();
  const Json* value = fields->object("options");
  if (value == nullptr) return;
  Fields options(*value, "options");
  read_float(&options, "temperature", {.max = 100}, &sampling.temperature);
  read_float(&options, "top_p", {.max = 1}, &sampling.top_p);
  read_float(&options, "min_p", {.max = 1}, &sampling.min_p);
  read_float(&options, "repeat_penalty", {.min = kRepetitionPenaltyMin, .max = 10},
             &sampling.repetition_penalty);
  read_float(&options, "presence_penalty", {.min = -2, .max = 2}, &sampling.presence_penalty);
  read_float(&options, "frequency_penalty", {.min = -2, .max = 2}, &sampling.frequency_penalty);
  if (const auto top_k = options.integer("top_k", {.max = INT32_MAX})) {
    sampling.top_k = static_cast<int32_t>(*top_k);
  }
  settle_top_p(&sampling);
  const auto seed = options.integer("seed", {.min = INT64_MIN});
  if (seed && *seed != -1) sampling.seed = static_cast<uint64_t>(*seed);
  // -1: until the end; -2: until the context is full, which is the same bound.
  const auto tokens = options.integer("num_predict", {.min = -2, .max = INT32_MAX});
  if (tokens && *tokens > 0) request->options.tokens_max = static_cast<uint32_t>(*tokens);
  if (tokens && *tokens == 0) options.fail("num_predict", "must be -1, or from 1");
  request->context_wanted = options.integer("num_ctx", {.min = 1});
  read_stops(&options, &request->options.stops);
  refuse_layout(&options);
  refuse_other_samplers(&options);
  if (auto error = options.finish()) fields->fail(std::move(*error));
}

void read_ollama_keep_alive(Fields* fields) {
  const Json* value = fields->any("keep_alive");  // the model stays loaded as long as the server
  if (value != nullptr && !value->is_string() && !value->is_number()) {
    fields->fail("keep_alive", "must be a duration or a number of seconds");
  }
}

namespace {

// true, false, or how much.
void read_think(Fields* fields, ThinkingOptions* thinking) {
  thinking->param = "think";
  const Json* value = fields->any("think");
  if (value == nullptr) return;
  if (value->is_string()) {
    thinking->effort = fields->choice("think", {"low", "medium", "high"});
  } else {
    thinking->is_wanted = fields->boolean("think");
  }
}

// What both routes have.
void read_common(Fields* fields, OllamaRequest* request) {
  if (auto model = fields->text("model")) {
    request->model = std::move(*model);
  } else {
    fields->fail("model", "must be a string: GET /api/tags has the names");
  }
  request->options.is_stream = fields->boolean("stream").value_or(true);
  read_ollama_options(fields, request);
  read_ollama_keep_alive(fields);
  read_think(fields, &request->input.thinking);
  fields->refuse_unless("logprobs", {false}, "is served by /v1/chat/completions");
  fields->refuse_unless("top_logprobs", {0}, "is served by /v1/chat/completions");
}

Json message(std::string_view role, std::string content) {
  return Json::object({{"role", role}, {"content", std::move(content)}});
}

// raw: the calls as they were written.
Json read_calls(Fields* message, std::string_view raw, std::string_view id_prefix) {
  Json out = Json::array();
  const Json* calls = message->array("tool_calls");
  if (calls == nullptr) return out;
  const auto raw_calls = raw_items(raw);
  for (size_t i = 0; i < calls->size() && !message->has_failed(); ++i) {
    if (!(*calls)[i].is_object()) {
      message->fail("tool_calls", "must be a list of objects");
      return out;
    }
    Fields call((*calls)[i], fmt::format("{}[{}]", message->path_of("tool_calls"), i));
    (void)call.choice("type", {"function"});
    std::string id = call.text("id").value_or(fmt::format("{}{}", id_prefix, i));
    const Json* json = call.object("function");
    if (json == nullptr) {
      call.fail("function", "must be an object");
    } else {
      Fields function(*json, call.path_of("function"));
      const auto name = function.text("name");
      if (!name) function.fail("name", "must be a string");
      if (function.object("arguments") == nullptr) function.fail("arguments", "must be an object");
      (void)function.integer("index", {});
      (void)function.text("description");
      const auto arguments = raw_member(raw_member(item_of(raw_calls, i), "function"), "arguments");
      out.push_back(
          Json::object({{"id", std::move(id)},
                        {"type", "function"},
                        {"function", {{"name", name.value_or("")}, {"arguments", arguments}}}}));
      if (auto error = function.finish()) call.fail(std::move(*error));
    }
    if (auto error = call.finish()) message->fail(std::move(*error));
  }
  return out;
}

// Results of tools name their function instead of their call: they are for the last calls, in
// order.
struct OpenCalls {
  Json calls = Json::array();
  size_t answered = 0;

  std::string next_id() {
    if (answered >= calls.size()) return "";
    return calls[answered++]["id"].get<std::string>();
  }
};

void read_message(Fields* fields, std::string_view raw, OpenCalls* open, Json* out) {
  const auto role = fields->choice("role", {"system", "user", "assistant", "tool"});
  if (!role) fields->fail("role", "must be one of: system, user, assistant, tool");
  auto calls =
      read_calls(fields, raw_member(raw, "tool_calls"), fmt::format("call_{}_", out->size()));
  auto content = fields->text("content");
  if (!content && calls.empty()) fields->fail("content", "must be a string");
  fields->refuse_unless("images", {Json::array()}, "this model reads text only");
  Json read = message(role.value_or(""), content.value_or(""));
  if (const auto thought = fields->text("thinking"); thought && !thought->empty()) {
    read["reasoning_content"] = *thought;
  }
  if (!calls.empty()) {
    if (content.value_or("").empty()) read["content"] = nullptr;
    read["tool_calls"] = calls;
    *open = {.calls = std::move(calls)};
  }
  const auto tool_name = fields->text("tool_name");
  const auto tool_call_id = fields->text("tool_call_id");
  if (role == "tool") {
    if (tool_name) read["name"] = *tool_name;
    const std::string next_id = open->next_id();
    read["tool_call_id"] = tool_call_id.value_or(next_id);
  }
  out->push_back(std::move(read));
}

Json read_messages(Fields* fields, std::string_view body) {
  Json messages = Json::array();
  const Json* list = fields->array("messages");
  if (list == nullptr) return messages;
  const auto raw = raw_items(raw_member(body, "messages"));
  OpenCalls open;
  fields->each_object("messages", *list, "", [&](Fields* entry, size_t i) {
    read_message(entry, item_of(raw, i), &open, &messages);
  });
  return messages;
}

}  // namespace

runtime::SamplingParams ollama_sampling() {
  runtime::SamplingParams params;
  params.temperature = 0.8F;
  params.top_k = 40;
  params.top_p = 0.9F;
  return params;
}

ApiResult<OllamaRequest> parse_ollama_chat(std::string_view body) {
  auto json = parse_body(body);
  if (!json.is_ok()) return json.error();
  Fields fields(*json);
  OllamaRequest request;
  read_common(&fields, &request);
  request.options.grammar = read_ollama_format(&fields, body);
  read_tools(&fields, body, &request.input.tools);
  Json messages = read_messages(&fields, body);
  if (auto error = fields.finish()) return std::move(*error);
  request.only_loads = messages.empty();
  request.input.template_input = Json::object({{"messages", std::move(messages)}});
  return request;
}

ApiResult<OllamaRequest> parse_ollama_generate(std::string_view body) {
  auto json = parse_body(body);
  if (!json.is_ok()) return json.error();
  Fields fields(*json);
  OllamaRequest request;
  read_common(&fields, &request);
  request.options.grammar = read_ollama_format(&fields, body);
  auto prompt = fields.text("prompt");
  const auto system = fields.text("system");
  request.is_raw = fields.boolean("raw").value_or(false);
  if (request.is_raw && system && !system->empty()) {
    fields.fail("system", "does not go with raw: true");
  }
  fields.refuse_unless("suffix", {""}, "is not served: answers go on from the prompt only");
  fields.refuse_unless("images", {Json::array()}, "this model reads text only");
  fields.refuse_unless("template", {""}, "is not served; use raw: true with the whole text");
  fields.refuse_unless("context", {Json::array()}, "is not served; use /api/chat");
  if (auto error = fields.finish()) return std::move(*error);
  request.only_loads = !prompt || prompt->empty();
  Json messages = Json::array();
  if (system && !system->empty()) messages.push_back(message("system", *system));
  messages.push_back(message("user", prompt.value_or("")));
  request.input.template_input = Json::object({{"messages", std::move(messages)}});
  request.text = std::move(prompt).value_or("");
  return request;
}

}  // namespace shoal::server

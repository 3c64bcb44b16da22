#include "server/ollama/routes.h"

#include <fmt/format.h>

#include <utility>

#include "server/generate/answer_json.h"
#include "server/ollama/answers.h"
#include "server/ollama/ollama_request.h"

namespace shoal::server {

std::string_view ollama_model_name(const Service& service, std::string_view name) {
  constexpr std::string_view kLatest = ":latest";
  const std::string& own = service.names().model;
  const bool is_tagged = name.size() == own.size() + kLatest.size() && name.starts_with(own) &&
                         name.ends_with(kLatest);
  return is_tagged ? std::string_view(own) : name;
}

std::optional<ApiError> check_ollama_context(const ServedModel& model,
                                             std::optional<int64_t> wanted) {
  const auto context = static_cast<int64_t>(model.context);
  if (wanted.value_or(0) <= context) return std::nullopt;
  return ApiError{.message = fmt::format("options.num_ctx: the server was started with a context "
                                         "of {} (--ctx); ask for that much or leave it out",
                                         context)};
}

namespace {

using ExchangePointer = std::shared_ptr<Exchange>;
using Ids = std::vector<runtime::TokenId>;

OrderedJson details(const ModelFacts& facts) {
  return {{"parent_model", ""},
          {"format", facts.format},
          {"family", facts.family},
          {"families", OrderedJson::array({facts.family})},
          {"parameter_size", facts.parameters_text},
          {"quantization_level", facts.quantization}};
}

// An entry of the lists of models; the digest stands for the name, since no layers are kept here.
OrderedJson entry(const Service& service, const ServedModel& model) {
  return {{"name", service.names().model},
          {"model", service.names().model},
          {"modified_at", utc_time(service.started())},
          {"size", model.facts.bytes},
          {"digest", service.names().fingerprint},
          {"details", details(model.facts)}};
}

ApiResult<OrderedJson> list(const Service& service, bool is_running) {
  const auto model = service.model();
  if (!model.is_ok()) return model.error();
  OrderedJson json = entry(service, **model);
  if (is_running) {
    json["expires_at"] = "9999-12-31T00:00:00Z";  // as long as the server runs
    json["size_vram"] = 0;
    json["context_length"] = (*model)->context;
  }
  return OrderedJson{{"models", OrderedJson::array({std::move(json)})}};
}

OrderedJson capabilities(const ServedModel& model) {
  OrderedJson list = OrderedJson::array({"completion"});
  if (model.chat_template == nullptr) return list;
  list.push_back("tools");
  if (model.format.thoughts != text::ThoughtFormat::kNone) list.push_back("thinking");
  return list;
}

ApiResult<OrderedJson> show(const Service& service, std::string_view body) {
  const auto json = parse_body(body);
  if (!json.is_ok()) return json.error();
  Fields fields(*json);
  // Ollama's own client sends both names, one of them empty, and all that could be changed.
  const std::string model_name = fields.text("model").value_or("");
  const std::string older_name = fields.text("name").value_or("");
  (void)fields.boolean("verbose");  // there is no more to show
  for (const char* changed : {"system", "template"}) {
    fields.refuse_unless(changed, {""}, "is the model's own here; leave it out");
  }
  fields.refuse_unless("options", {Json::object()}, "are the model's own here; leave them out");
  const std::string name = model_name.empty() ? older_name : model_name;
  if (name.empty()) fields.fail("model", "must be a string");
  if (auto error = fields.finish()) return std::move(*error);
  const auto model = service.model_named(ollama_model_name(service, name));
  if (!model.is_ok()) return model.error();
  const ModelFacts& facts = (*model)->facts;
  return OrderedJson{{"modelfile", ""},
                     {"parameters", ""},
                     {"template", facts.chat_template},
                     {"details", details(facts)},
                     {"model_info",
                      {{"general.architecture", facts.family},
                       {"general.parameter_count", facts.parameters},
                       {fmt::format("{}.context_length", facts.family), (*model)->context}}},
                     {"capabilities", capabilities(**model)},
                     {"modified_at", utc_time(service.started())}};
}

ApiResult<std::vector<Choice>> choices_of(const ServedModel& model, const OllamaRequest& request) {
  if (request.is_raw) {
    const auto ids = encode_prompt(model, request.text);
    if (!ids.is_ok()) return ids.error();
    if (auto error = check_prompt(model, *ids)) return std::move(*error);
    auto choices =
        make_choices(request.options, *ids, model.tokenizer->special().end_of_generation);
    if (auto error = constrain(*model.grammars, request.options.grammar, &choices)) {
      return std::move(*error);
    }
    return choices;
  }
  const auto prompt = render_conversation(model, request.input);
  if (!prompt.is_ok()) return prompt.error();
  if (auto error = check_prompt(model, (*prompt).ids)) return std::move(*error);
  return chat_choices(model, request.options, request.input.tools, *prompt);
}

std::optional<ApiError> answer(Service& service, OllamaRequest* request, bool is_chat,
                               const ExchangePointer& exchange) {
  const auto found = service.model_named(ollama_model_name(service, request->model));
  if (!found.is_ok()) return found.error();
  const ServedModel& model = **found;
  if (auto error = check_ollama_context(model, request->context_wanted)) return error;
  const OllamaAnswerOptions options{
      .model = request->model, .is_chat = is_chat, .is_stream = request->options.is_stream};
  if (request->only_loads) {
    exchange->respond(ollama_loaded(options));
    return std::nullopt;
  }
  auto choices = choices_of(model, *request);
  if (!choices.is_ok()) return choices.error();
  return service.generate(model, std::move(*choices),
                          make_ollama_answer(options, exchange, service), exchange);
}

using Parse = ApiResult<OllamaRequest> (*)(std::string_view body);

void add_answers(Service& service, std::string pattern, Parse parse, Router* router) {
  const bool is_chat = pattern == "/api/chat";
  router->add(
      {.method = "POST",
       .pattern = std::move(pattern),
       .handler = [&service, parse, is_chat](const Request& http, const ExchangePointer& exchange) {
         auto request = parse(http.body);
         const auto error = request.is_ok() ? answer(service, &*request, is_chat, exchange)
                                            : std::optional(request.error());
         if (error) exchange->respond(ollama_error(*error));
       }});
}

void respond(const ApiResult<OrderedJson>& result, const ExchangePointer& exchange) {
  exchange->respond(result.is_ok() ? Response{.body = to_text(*result)}
                                   : ollama_error(result.error()));
}

}  // namespace

void add_ollama_routes(Service& service, Router* router) {
  router->set_errors("/api", ollama_error);
  // Ollama's command line asks for this before anything else, others look for the words.
  router->add({.method = "GET",
               .pattern = "/",
               .handler =
                   [](const Request&, const ExchangePointer& exchange) {
                     exchange->respond({.body = "Ollama is running", .content_type = "text/plain"});
                   },
               .is_public = true,
               .is_quick = true});
  add_answers(service, "/api/chat", parse_ollama_chat, router);
  add_answers(service, "/api/generate", parse_ollama_generate, router);
  for (const bool is_running : {false, true}) {
    router->add(
        {.method = "GET",
         .pattern = is_running ? "/api/ps" : "/api/tags",
         .handler = [&service, is_running](const Request&, const ExchangePointer& exchange) {
           respond(list(service, is_running), exchange);
         }});
  }
  router->add({.method = "POST",
               .pattern = "/api/show",
               .handler = [&service](const Request& http, const ExchangePointer& exchange) {
                 respond(show(service, http.body), exchange);
               }});
  router->add({.method = "GET",
               .pattern = "/api/version",
               .handler =
                   [&service](const Request&, const ExchangePointer& exchange) {
                     exchange->respond({.body = to_text({{"version", service.names().version}})});
                   },
               .is_quick = true});
}

}  // namespace shoal::server

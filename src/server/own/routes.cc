#include "server/own/routes.h"

#include <fmt/format.h>

#include <utility>

#include "server/generate/answer_json.h"
#include "server/openai/chat_request.h"
#include "server/own/openapi.h"

namespace shoal::server {
namespace {

using Ids = std::vector<runtime::TokenId>;
using ExchangePointer = std::shared_ptr<Exchange>;

struct PhaseText {
  std::string_view name;
  bool is_healthy = false;  // a supervisor has no reason to start it anew
};

PhaseText describe(Service::Phase phase) {
  switch (phase) {
    case Service::Phase::kLoading:
      return {.name = "loading"};
    case Service::Phase::kReady:
      return {.name = "ok", .is_healthy = true};
    case Service::Phase::kDraining:
      return {.name = "draining"};
    case Service::Phase::kFailed:
      return {.name = "failed"};
  }
  return {.name = "failed"};
}

Response health(const Service& service) {
  const Service::Phase phase = service.phase();
  const PhaseText text = describe(phase);
  OrderedJson json = {{"status", text.name}, {"model", service.names().model}};
  if (phase == Service::Phase::kFailed) json["error"] = service.failure();
  Response response{.status = text.is_healthy ? 200 : 503, .body = to_text(json)};
  if (phase == Service::Phase::kLoading) response.headers.push_back({"Retry-After", "2"});
  return response;
}

Response metrics(const Service& service) {
  Response response{.content_type = "text/plain; version=0.0.4; charset=utf-8"};
  const auto model = service.model();
  if (model.is_ok()) {
    const runtime::SchedulerStats stats = (*model)->generator->stats();
    response.body = service.metrics().render(&stats);
  } else {
    response.body = service.metrics().render(nullptr);
  }
  return response;
}

ApiResult<OrderedJson> tokenize(const Service& service, const Json& body) {
  const auto model = service.model();
  if (!model.is_ok()) return model.error();
  Fields fields(body);
  (void)fields.text("model");  // there is one
  const auto prompt = fields.text("prompt");
  const bool has_messages = fields.any("messages") != nullptr;
  Json input = Json::object();
  if (has_messages) input["messages"] = read_messages(&fields, "messages");
  if (prompt.has_value() == has_messages) fields.fail("prompt", "or messages must be given");
  const bool adds_special = fields.boolean("add_special_tokens").value_or(true);
  input["add_generation_prompt"] = fields.boolean("add_generation_prompt").value_or(true);
  if (auto error = fields.finish()) return std::move(*error);
  Ids ids;
  if (has_messages) {
    auto rendered = render_chat(**model, std::move(input));
    if (!rendered.is_ok()) return rendered.error();
    ids = std::move(*rendered);
  } else {
    auto encoded =
        (*model)->tokenizer->encode(*prompt, {.add_special = adds_special, .parse_special = true});
    if (!encoded.is_ok()) return ApiError{.message = encoded.status().message(), .param = "prompt"};
    ids = std::move(*encoded);
  }
  return OrderedJson{
      {"count", ids.size()}, {"max_model_len", (*model)->context}, {"tokens", std::move(ids)}};
}

ApiResult<OrderedJson> detokenize(const Service& service, const Json& body) {
  const auto model = service.model();
  if (!model.is_ok()) return model.error();
  Fields fields(body);
  (void)fields.text("model");
  Ids ids;
  const Json* tokens = fields.array("tokens");
  if (tokens == nullptr) fields.fail("tokens", "must be a list of token ids");
  for (const Json& token : tokens != nullptr ? *tokens : Json::array()) {
    const bool is_good = token.is_number_integer() && token >= 0 && token <= INT32_MAX &&
                         (*model)->tokenizer->is_valid(token.get<runtime::TokenId>());
    if (!is_good) {
      fields.fail("tokens", "must be ids of the vocabulary");
      break;
    }
    ids.push_back(token.get<runtime::TokenId>());
  }
  if (auto error = fields.finish()) return std::move(*error);
  const auto text = (*model)->tokenizer->decode(ids, {.skip_special = false});
  if (!text.is_ok()) return ApiError{.message = text.status().message(), .param = "tokens"};
  return OrderedJson{{"prompt", *text}};
}

using Work = ApiResult<OrderedJson> (*)(const Service&, const Json&);

void add_work(Service& service, std::string pattern, Work work, Router* router) {
  router->add(
      {.method = "POST",
       .pattern = std::move(pattern),
       .handler = [&service, work](const Request& request, const ExchangePointer& exchange) {
         const auto body = parse_body(request.body);
         const ApiResult<OrderedJson> result = body.is_ok() ? work(service, *body) : body.error();
         exchange->respond(result.is_ok() ? Response{.body = to_text(*result)}
                                          : error_response(result.error()));
       }});
}

}  // namespace

void add_own_routes(Service& service, Router* router) {
  for (const char* pattern : {"/health", "/ready"}) {
    router->add({.method = "GET",
                 .pattern = pattern,
                 .handler =
                     [&service](const Request&, const ExchangePointer& exchange) {
                       exchange->respond(health(service));
                     },
                 .is_public = true,
                 .is_quick = true});
  }
  router->add({.method = "GET",
               .pattern = "/metrics",
               .handler = [&service](const Request&, const ExchangePointer& exchange) {
                 exchange->respond(metrics(service));
               }});
  router->add({.method = "GET",
               .pattern = "/version",
               .handler =
                   [&service](const Request&, const ExchangePointer& exchange) {
                     exchange->respond({.body = to_text({{"version", service.names().version}})});
                   },
               .is_quick = true});
  router->add({.method = "GET",
               .pattern = "/openapi.json",
               .handler = [&service](const Request&, const ExchangePointer& exchange) {
                 exchange->respond({.body = openapi_json(service.names().version)});
               }});
  add_work(service, "/tokenize", tokenize, router);
  add_work(service, "/detokenize", detokenize, router);
}

}  // namespace shoal::server

#include "server/openai/routes.h"

#include <utility>

#include "server/openai/answers.h"
#include "server/openai/chat_request.h"
#include "server/openai/completion_request.h"

namespace shoal::server {
namespace {

using Ids = std::vector<runtime::TokenId>;

OrderedJson model_json(const Service& service) {
  return {{"id", service.names().model},
          {"object", "model"},
          {"created", service.started()},
          {"owned_by", "shoal"}};
}

AnswerOptions answer_options(const Service& service, const GenerationOptions& options) {
  return {.model = service.names().model,
          .fingerprint = service.names().fingerprint,
          .is_stream = options.is_stream,
          .includes_usage = options.includes_usage,
          .choices = options.choices,
          .choices_per_prompt = options.choices};
}

// The model that a request names, which its options fit.
ApiResult<const ServedModel*> model_for(const Service& service, std::string_view name,
                                        const GenerationOptions& options) {
  auto model = service.model_named(name);
  if (!model.is_ok()) return model.error();
  if (auto error = check_against_model(options, (*model)->generator->token_count())) {
    return std::move(*error);
  }
  return model;
}

std::optional<ApiError> chat(Service& service, const Request& http,
                             const std::shared_ptr<Exchange>& exchange) {
  auto request = parse_chat_request(http.body);
  if (!request.is_ok()) return request.error();
  const GenerationOptions& options = request->options;
  const auto model = model_for(service, request->model, options);
  if (!model.is_ok()) return model.error();
  const ServedModel& served = **model;
  const ToolOptions tools = request->input.tools;
  const auto prompt = render_conversation(served, std::move(request->input));
  if (!prompt.is_ok()) return prompt.error();
  if (auto error = check_prompt(served, (*prompt).ids)) {
    error->param = "messages";
    return error;
  }
  auto choices = chat_choices(served, options, tools, *prompt);
  if (!choices.is_ok()) return choices.error();
  auto shape =
      make_chat_shape({.tokenizer = served.tokenizer, .wants_logprobs = options.wants_logprobs});
  return service.generate(
      served, std::move(*choices),
      make_answer(answer_options(service, options), std::move(shape), exchange, service), exchange);
}

ApiResult<Ids> prompt_ids(const ServedModel& model, const Prompt& prompt) {
  ApiResult<Ids> ids = std::holds_alternative<Ids>(prompt)
                           ? ApiResult<Ids>(std::get<Ids>(prompt))
                           : encode_prompt(model, std::get<std::string>(prompt));
  if (!ids.is_ok()) return ids.error();
  if (auto error = check_prompt(model, *ids)) {
    error->param = "prompt";
    return std::move(*error);
  }
  return ids;
}

ApiResult<std::string> echo_of(const ServedModel& model, const Prompt& prompt) {
  if (const auto* text = std::get_if<std::string>(&prompt)) return *text;
  const auto text = model.tokenizer->decode(std::get<Ids>(prompt), {.skip_special = false});
  if (!text.is_ok()) return ApiError{.message = text.status().message(), .param = "prompt"};
  return *text;
}

std::optional<ApiError> complete(Service& service, const Request& http,
                                 const std::shared_ptr<Exchange>& exchange) {
  auto request = parse_completion_request(http.body);
  if (!request.is_ok()) return request.error();
  const GenerationOptions& options = request->options;
  const auto model = model_for(service, request->model, options);
  if (!model.is_ok()) return model.error();
  const ServedModel& served = **model;
  std::vector<Choice> choices;
  std::vector<std::string> echoes;
  for (const Prompt& prompt : request->prompts) {
    const auto ids = prompt_ids(served, prompt);
    if (!ids.is_ok()) return ids.error();
    for (Choice& choice :
         make_choices(options, *ids, served.tokenizer->special().end_of_generation)) {
      choices.push_back(std::move(choice));
    }
    if (!request->echoes) continue;
    const auto echo = echo_of(served, prompt);
    if (!echo.is_ok()) return echo.error();
    echoes.insert(echoes.end(), options.choices, *echo);
  }
  if (auto error = constrain(*served.grammars, options.grammar, &choices)) return error;
  auto shape = make_completion_shape(
      {.tokenizer = served.tokenizer, .wants_logprobs = options.wants_logprobs}, std::move(echoes));
  AnswerOptions answer = answer_options(service, options);
  answer.choices = choices.size();
  return service.generate(served, std::move(choices),
                          make_answer(answer, std::move(shape), exchange, service), exchange);
}

using Work = std::optional<ApiError> (*)(Service&, const Request&,
                                         const std::shared_ptr<Exchange>&);

void add_work(Service& service, std::string pattern, Work work, Router* router) {
  router->add({.method = "POST",
               .pattern = std::move(pattern),
               .handler = [&service, work](const Request& request,
                                           const std::shared_ptr<Exchange>& exchange) {
                 if (const auto error = work(service, request, exchange)) {
                   exchange->respond(error_response(*error));
                 }
               }});
}

}  // namespace

void add_openai_routes(Service& service, Router* router) {
  router->add({.method = "GET",
               .pattern = "/v1/models",
               .handler =
                   [&service](const Request&, const std::shared_ptr<Exchange>& exchange) {
                     exchange->respond(
                         {.body = to_text({{"object", "list"},
                                           {"data", OrderedJson::array({model_json(service)})}})});
                   },
               .is_quick = true});
  router->add({.method = "GET",
               .pattern = "/v1/models/*",
               .handler =
                   [&service](const Request& request, const std::shared_ptr<Exchange>& exchange) {
                     if (request.tail == service.names().model) {
                       exchange->respond({.body = to_text(model_json(service))});
                     } else {
                       exchange->respond(error_response(service.model_named(request.tail).error()));
                     }
                   },
               .is_quick = true});
  add_work(service, "/v1/chat/completions", chat, router);
  add_work(service, "/v1/completions", complete, router);
}

}  // namespace shoal::server

#include "server/responses/routes.h"

#include <utility>

#include "server/responses/answers.h"
#include "server/responses/responses_request.h"

namespace shoal::server {
namespace {

// What is said of a conversation's messages, about the field that has them here.
ApiError about_input(ApiError error) {
  if (error.param == "messages") error.param = "input";
  return error;
}

std::optional<ApiError> respond(Service& service, const Request& http,
                                const std::shared_ptr<Exchange>& exchange) {
  auto request = parse_responses_request(http.body);
  if (!request.is_ok()) return request.error();
  const auto found = service.model_named(request->model);
  if (!found.is_ok()) return found.error();
  const ServedModel& model = **found;
  const ToolOptions tools = request->input.tools;
  const auto prompt = render_conversation(model, std::move(request->input));
  if (!prompt.is_ok()) return about_input(prompt.error());
  if (auto error = check_prompt(model, (*prompt).ids)) {
    error->param = "input";
    return error;
  }
  const GenerationOptions& options = request->options;
  auto choices = chat_choices(model, options, tools, *prompt);
  if (!choices.is_ok()) return choices.error();
  const ResponseOptions response{.model = service.names().model,
                                 .echo = std::move(request->echo),
                                 .tokenizer = model.tokenizer,
                                 .is_stream = options.is_stream,
                                 .wants_logprobs = options.wants_logprobs};
  return service.generate(model, std::move(*choices), make_response(response, exchange, service),
                          exchange);
}

}  // namespace

void add_responses_routes(Service& service, Router* router) {
  router->add(
      {.method = "POST",
       .pattern = "/v1/responses",
       .handler = [&service](const Request& http, const std::shared_ptr<Exchange>& exchange) {
         if (const auto error = respond(service, http, exchange)) {
           exchange->respond(error_response(*error));
         }
       }});
}

}  // namespace shoal::server

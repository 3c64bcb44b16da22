#include "server/responses/routes.h"

#include <utility>

#include "server/responses/answers.h"
#include "server/responses/responses_request.h"

namespace shoal::server {
namespace {

std::optional<ApiError> respond(Service& service, const Request& http,
                                const std::shared_ptr<Exchange>& exchange) {
  auto request = parse_responses_request(http.body);
  if (!request.is_ok()) return request.error();
  const auto found = service.model_named(request->model);
  if (!found.is_ok()) return found.error();
  const ServedModel& model = **found;
  const auto prompt = render_chat(model, std::move(request->template_input));
  std::optional<ApiError> error = prompt.is_ok() ? check_prompt(model, *prompt) : prompt.error();
  if (error) {
    if (error->code != "no_chat_template") error->param = "input";
    return error;
  }
  const GenerationOptions& options = request->options;
  const ResponseOptions response{.model = service.names().model,
                                 .echo = std::move(request->echo),
                                 .tokenizer = model.tokenizer,
                                 .is_stream = options.is_stream,
                                 .wants_logprobs = options.wants_logprobs};
  return service.generate(
      model, make_choices(options, *prompt, model.tokenizer->special().end_of_generation),
      make_response(response, exchange, service), exchange);
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

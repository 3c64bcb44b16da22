#include "server/anthropic/routes.h"

#include <utility>

#include "server/anthropic/answers.h"
#include "server/anthropic/message_request.h"
#include "server/generate/answer_json.h"

namespace shoal::server {
namespace {

using ExchangePointer = std::shared_ptr<Exchange>;

// The prompt that a request means.
struct Prepared {
  const ServedModel* model = nullptr;
  ChatPrompt prompt{};
};
ApiResult<Prepared> prepare(const Service& service, const MessageRequest& request) {
  const auto model = service.model_named(request.model);
  if (!model.is_ok()) return model.error();
  auto prompt = render_conversation(**model, request.input);
  if (!prompt.is_ok()) return prompt.error();
  return Prepared{.model = *model, .prompt = std::move(*prompt)};
}

std::optional<ApiError> answer(Service& service, const Request& http,
                               const ExchangePointer& exchange) {
  auto request = parse_message_request(http.body);
  if (!request.is_ok()) return request.error();
  auto prepared = prepare(service, *request);
  if (!prepared.is_ok()) return prepared.error();
  const ServedModel& model = *prepared->model;
  const ChatPrompt& prompt = prepared->prompt;
  if (auto error = check_prompt(model, prompt.ids)) return error;
  auto choices = chat_choices(model, request->options, request->input.tools, prompt);
  if (!choices.is_ok()) return choices.error();
  const MessageAnswerOptions options{.model = service.names().model,
                                     .prompt_tokens = prompt.ids.size(),
                                     .is_stream = request->options.is_stream,
                                     .shows_thoughts = request->shows_thoughts};
  return service.generate(model, std::move(*choices),
                          make_message_answer(options, exchange, service), exchange);
}

std::optional<ApiError> count(Service& service, const Request& http,
                              const ExchangePointer& exchange) {
  auto request = parse_count_request(http.body);
  if (!request.is_ok()) return request.error();
  const auto prepared = prepare(service, *request);
  if (!prepared.is_ok()) return prepared.error();
  exchange->respond({.body = to_text({{"input_tokens", (*prepared).prompt.ids.size()}})});
  return std::nullopt;
}

using Work = std::optional<ApiError> (*)(Service&, const Request&, const ExchangePointer&);

void add_work(Service& service, std::string pattern, Work work, Router* router) {
  router->add(
      {.method = "POST",
       .pattern = std::move(pattern),
       .handler = [&service, work](const Request& request, const ExchangePointer& exchange) {
         if (const auto error = work(service, request, exchange)) {
           exchange->respond(anthropic_error(*error));
         }
       }});
}

}  // namespace

void add_anthropic_routes(Service& service, Router* router) {
  router->set_errors("/v1/messages", anthropic_error);
  add_work(service, "/v1/messages", answer, router);
  add_work(service, "/v1/messages/count_tokens", count, router);
}

}  // namespace shoal::server

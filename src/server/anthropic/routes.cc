#include "server/anthropic/routes.h"

#include <utility>

#include "server/anthropic/answers.h"
#include "server/anthropic/message_request.h"
#include "server/generate/answer_json.h"

namespace shoal::server {
namespace {

using ExchangePointer = std::shared_ptr<Exchange>;

// What of the effort that is asked for the model's template knows, by the rules of chats'
// reasoning_effort, but that it asks for no thought by itself.
std::optional<ApiError> put_effort(const std::optional<std::string>& effort,
                                   const text::AnswerFormat& format, ChatInput* input) {
  if (!effort) return std::nullopt;
  if (format.reads_reasoning_effort) {
    input->template_input["reasoning_effort"] = *effort;
    return std::nullopt;
  }
  const bool thinks = input->thinking.is_wanted == true && !format.thinking_variable.empty();
  if (thinks || effort == "high") return std::nullopt;  // which the API does without
  return ApiError{.message =
                      "output_config.effort: this model has no levels of effort; leave it "
                      "out, send high, or ask it to think where it can",
                  .param = "output_config.effort",
                  .code = "unsupported_parameter"};
}

// The prompt that a request means.
struct Prepared {
  const ServedModel* model = nullptr;
  ChatPrompt prompt{};
};
ApiResult<Prepared> prepare(const Service& service, const MessageRequest& request) {
  const auto model = service.model_named(request.model);
  if (!model.is_ok()) return model.error();
  ChatInput input = request.input;
  if (auto error = put_effort(request.effort, (*model)->format, &input)) return std::move(*error);
  auto prompt = render_conversation(**model, std::move(input));
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

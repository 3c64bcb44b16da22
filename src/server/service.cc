#include "server/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "server/chat.h"

namespace shoal::server {
namespace {

// Loading takes seconds to minutes: a client that asks again after this long is not in the way.
constexpr int kLoadingRetrySeconds = 2;

ApiError unavailable(std::string message, const char* code, std::optional<int> retry) {
  return {.status = 503,
          .message = std::move(message),
          .type = "server_error",
          .code = code,
          .retry_after_seconds = retry};
}

}  // namespace

void Service::set_ready(const ServedModel& model) {
  CHECK(phase() == Phase::kLoading);
  model_ = model;
  if (model.chat_template != nullptr) {
    model_.format = text::find_answer_format(model.facts.chat_template);
    metrics_.on_model(model_.format);
  }
  phase_.store(Phase::kReady);
}

void Service::set_failed(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (phase_.exchange(Phase::kFailed) != Phase::kFailed) failure_ = status.message();
}

void Service::note_failure(const Status& status) {
  const StatusCode code = status.code();
  if (code == StatusCode::kGroup || code == StatusCode::kNode) set_failed(status);
}

ApiError Service::broken_off(const ChoiceEnd& end) {
  note_failure(end.status);
  if (end.status.code() == StatusCode::kRequest) {
    return {.status = 500, .message = end.status.message(), .type = "server_error"};
  }
  if (end.status.code() == StatusCode::kBusy) {
    return phase() == Phase::kDraining ? shutting_down_error()
                                       : to_error(end.status, *model_.generator);
  }
  return unavailable(end.status.is_ok() ? "the request was cancelled" : end.status.message(),
                     "answer_broken_off", std::nullopt);
}

std::string Service::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

ApiResult<const ServedModel*> Service::model() const {
  switch (phase()) {
    case Phase::kReady:
      return &model_;
    case Phase::kLoading:
      return unavailable("the model is being loaded; try again soon", "model_loading",
                         kLoadingRetrySeconds);
    case Phase::kDraining:
      return shutting_down_error();
    case Phase::kFailed:
      break;
  }
  return unavailable("the model has failed: " + failure(), "model_failed", std::nullopt);
}

ApiResult<const ServedModel*> Service::model_named(std::string_view name) const {
  if (name != names_.model) {
    return ApiError{.status = 404,
                    .message = fmt::format(
                        "there is no model of this name here; this server has {}", names_.model),
                    .param = "model",
                    .code = "model_not_found"};
  }
  return model();
}

std::optional<ApiError> Service::generate(const ServedModel& model, std::vector<Choice> choices,
                                          std::unique_ptr<AnswerReceiver> receiver,
                                          const std::shared_ptr<Exchange>& exchange) {
  for (Choice& choice : choices) {
    const auto room = static_cast<uint32_t>(model.context - choice.request.prompt.size());
    uint32_t& tokens_max = choice.request.tokens_max;
    tokens_max = tokens_max == 0 ? room : std::min(tokens_max, room);
  }
  const GenerationParts parts{.generator = *model.generator,
                              .tokenizer = *model.tokenizer,
                              .workers = text_worker_,
                              .observer = metrics_};
  const auto generation = Generation::start(parts, std::move(choices), std::move(receiver));
  if (!generation.is_ok()) {
    note_failure(generation.status());
    return to_error(generation.status(), *model.generator);
  }
  // The exchange lets go of these when the answer is sent or the client has gone.
  exchange->set_callbacks({.on_gone = [kept = *generation] { kept->cancel(); },
                           .on_room = [kept = *generation] { kept->resume(); }});
  return std::nullopt;
}

std::optional<ApiError> Service::embed(const ServedModel& model,
                                       std::vector<std::vector<runtime::TokenId>> texts,
                                       std::unique_ptr<EmbeddingReceiver> receiver,
                                       const std::shared_ptr<Exchange>& exchange) {
  std::vector<runtime::EmbeddingRequest> requests;
  requests.reserve(texts.size());
  for (std::vector<runtime::TokenId>& text : texts) {
    requests.push_back(
        {.prompt = std::move(text), .pooling = model.embedding.pooling, .sink = nullptr});
  }
  const EmbeddingParts parts{
      .generator = *model.generator, .workers = text_worker_, .observer = metrics_};
  const auto batch = EmbeddingBatch::start(parts, std::move(requests), std::move(receiver));
  if (!batch.is_ok()) {
    note_failure(batch.status());
    return to_error(batch.status(), *model.generator);
  }
  // The exchange lets go of it when the answer is sent or the client has gone.
  exchange->set_callbacks({.on_gone = [kept = *batch] { kept->cancel(); }, .on_room = [] {}});
  return std::nullopt;
}

ApiError to_error(const Status& status, const Generator& generator) {
  switch (status.code()) {
    case StatusCode::kRequest:
      return {.message = status.message()};
    case StatusCode::kBusy: {
      const double seconds = std::clamp(generator.stats().retry_after_seconds, 1.0, 600.0);
      return {.status = 429,
              .message = status.message(),
              .type = "rate_limit_error",
              .code = "queue_full",
              .retry_after_seconds = static_cast<int>(std::ceil(seconds))};
    }
    case StatusCode::kOk:
    case StatusCode::kGroup:
    case StatusCode::kNode:
      break;
  }
  return unavailable(status.message(), "model_failed", std::nullopt);
}

ApiResult<std::vector<runtime::TokenId>> render_chat(const ServedModel& model, Json input) {
  auto prompt = render_conversation(model, {.template_input = std::move(input)});
  if (!prompt.is_ok()) return prompt.error();
  return std::move(prompt->ids);
}

ApiResult<std::vector<runtime::TokenId>> encode_prompt(const ServedModel& model,
                                                       const std::string& text) {
  auto ids = model.tokenizer->encode(text, {.parse_special = true});
  if (!ids.is_ok()) return ApiError{.message = ids.status().message(), .param = "prompt"};
  return std::move(ids).value();
}

namespace {

std::optional<ApiError> check_ids(const ServedModel& model, std::string_view what,
                                  const std::vector<runtime::TokenId>& ids) {
  const size_t count = model.generator->token_count();
  for (const runtime::TokenId id : ids) {
    if (id >= 0 && static_cast<size_t>(id) < count) continue;
    return ApiError{
        .message = fmt::format("{}: token {} is not in the vocabulary of {}", what, id, count)};
  }
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> check_text(const ServedModel& model,
                                   const std::vector<runtime::TokenId>& text, size_t tokens_max) {
  if (text.empty()) return ApiError{.message = "the text is empty: there is nothing to embed"};
  if (auto error = check_ids(model, "the text", text)) return error;
  if (text.size() <= tokens_max) return std::nullopt;
  return ApiError{
      .message = fmt::format("the text has {} tokens and the context holds {}; embed it "
                             "in parts, or serve the model with a larger --ctx",
                             text.size(), tokens_max),
      .code = "context_length_exceeded"};
}

std::optional<ApiError> check_prompt(const ServedModel& model,
                                     const std::vector<runtime::TokenId>& prompt) {
  if (prompt.empty()) {
    return ApiError{.message = "the prompt is empty, so there is nothing to continue"};
  }
  if (auto error = check_ids(model, "the prompt", prompt)) return error;
  if (prompt.size() < model.context) return std::nullopt;
  return ApiError{.message = fmt::format("the prompt has {} tokens and the context holds {}, so "
                                         "there is no room for an answer",
                                         prompt.size(), model.context),
                  .code = "context_length_exceeded"};
}

}  // namespace shoal::server

#include "server/embed/routes.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "server/embed/answers.h"
#include "server/embed/embed_request.h"
#include "server/ollama/answers.h"
#include "server/ollama/routes.h"

namespace shoal::server {
namespace {

using ExchangePointer = std::shared_ptr<Exchange>;
using Ids = std::vector<runtime::TokenId>;

// Cuts what goes beyond `tokens_max` off, but not the token that ends every text, where there is
// one: the last token's state may be all that is used.
void truncate(const text::SpecialTokens& special, size_t tokens_max, Ids* ids) {
  if (ids->size() <= tokens_max) return;
  const runtime::TokenId last = ids->back();
  ids->resize(tokens_max);
  if (special.add_eos && special.eos == last) ids->back() = last;
}

// Of one text. `request`: what it says of lengths.
ApiResult<Ids> text_ids(const ServedModel& model, const Prompt& text, const EmbedRequest& request) {
  const auto context = static_cast<int64_t>(model.context);
  const auto tokens_max =
      static_cast<size_t>(std::min(request.context_wanted.value_or(context), context));
  Ids ids;
  if (const auto* given = std::get_if<Ids>(&text)) {
    ids = *given;
  } else {
    auto encoded = encode_prompt(model, std::get<std::string>(text));
    if (!encoded.is_ok()) return encoded;
    ids = std::move(*encoded);
  }
  if (request.truncates) truncate(model.tokenizer->special(), tokens_max, &ids);
  if (auto error = check_text(model, ids, tokens_max)) return std::move(*error);
  return ids;
}

// name: of the field with the texts.
ApiResult<std::vector<Ids>> all_ids(const ServedModel& model, const EmbedRequest& request,
                                    const std::string& name) {
  std::vector<Ids> all;
  all.reserve(request.texts.size());
  for (size_t i = 0; i < request.texts.size(); ++i) {
    auto ids = text_ids(model, request.texts[i], request);
    if (!ids.is_ok()) {
      ApiError error = ids.error();
      error.param = name;
      if (request.texts.size() > 1)
        error.message = fmt::format("{}[{}]: ", name, i) + error.message;
      return error;
    }
    all.push_back(std::move(*ids));
  }
  return all;
}

ApiResult<size_t> dimensions_of(const ServedModel& model, const EmbedRequest& request) {
  const auto all = static_cast<int64_t>(model.embedding.size);
  const int64_t wanted = request.dimensions.value_or(all);
  if (wanted <= all) return static_cast<size_t>(wanted);
  return ApiError{.message = fmt::format("dimensions: must be at most {}, as many as the model's "
                                         "embeddings have",
                                         all),
                  .param = "dimensions"};
}

// What all routes do with a request.
std::optional<ApiError> embed(Service& service, const EmbedRequest& request,
                              const EmbeddingAnswerOptions& shape,
                              const ExchangePointer& exchange) {
  const bool is_openai = shape.api == EmbeddingApi::kOpenAi;
  const auto found = service.model_named(is_openai ? std::string_view(request.model)
                                                   : ollama_model_name(service, request.model));
  if (!found.is_ok()) return found.error();
  const ServedModel& model = **found;
  if (!model.embedding.unserved.empty()) {
    return ApiError{.message = fmt::format("the model's embeddings need {}, which is not served",
                                           model.embedding.unserved),
                    .param = "model",
                    .code = "unsupported_parameter"};
  }
  if (auto error = check_ollama_context(model, request.context_wanted)) return error;
  const auto dimensions = dimensions_of(model, request);
  if (!dimensions.is_ok()) return dimensions.error();
  EmbeddingAnswerOptions options = shape;
  options.dimensions = *dimensions;
  options.texts = request.texts.size();
  auto receiver = make_embedding_answer(options, exchange, service);
  if (request.texts.empty()) {  // the model is loaded, which is all that was asked
    receiver->on_end({});
    return std::nullopt;
  }
  auto ids =
      all_ids(model, request, options.api == EmbeddingApi::kOllamaOlder ? "prompt" : "input");
  if (!ids.is_ok()) return ids.error();
  return service.embed(model, std::move(*ids), std::move(receiver), exchange);
}

using Parse = ApiResult<EmbedRequest> (*)(std::string_view body);

void add_route(Service& service, EmbeddingApi api, Parse parse, std::string pattern,
               Router* router) {
  router->add(
      {.method = "POST",
       .pattern = std::move(pattern),
       .handler = [&service, api, parse](const Request& http, const ExchangePointer& exchange) {
         const auto request = parse(http.body);
         std::optional<ApiError> error;
         if (request.is_ok()) {
           const EmbeddingAnswerOptions shape{
               .api = api, .model = (*request).model, .format = (*request).format};
           error = embed(service, *request, shape, exchange);
         } else {
           error = request.error();
         }
         if (error) exchange->respond(embedding_error(api, *error));
       }});
}

}  // namespace

void add_embedding_routes(Service& service, Router* router) {
  add_route(service, EmbeddingApi::kOpenAi, parse_openai_embed, "/v1/embeddings", router);
  add_route(service, EmbeddingApi::kOllama, parse_ollama_embed, "/api/embed", router);
  add_route(service, EmbeddingApi::kOllamaOlder, parse_ollama_embeddings, "/api/embeddings",
            router);
}

}  // namespace shoal::server

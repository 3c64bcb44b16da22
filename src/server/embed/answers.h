// Receivers of embeddings that write them as each API does: one JSON object.
//
// Thread rule: by EmbeddingReceiver's.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "server/api/error_response.h"
#include "server/embed/embed_request.h"
#include "server/embed/embedding_batch.h"
#include "server/http/exchange.h"
#include "server/service.h"

namespace shoal::server {

enum class EmbeddingApi {
  kOpenAi,
  kOllama,
  kOllamaOlder,  // /api/embeddings: one embedding and nothing else
};

struct EmbeddingAnswerOptions {
  EmbeddingApi api = EmbeddingApi::kOpenAi;
  std::string model;  // as the request names it
  EmbeddingFormat format = EmbeddingFormat::kFloat;
  size_t dimensions = 0;
  size_t texts = 0;
};

std::unique_ptr<EmbeddingReceiver> make_embedding_answer(const EmbeddingAnswerOptions& options,
                                                         std::shared_ptr<Exchange> exchange,
                                                         Service& service);

// An error in the API's shape.
Response embedding_error(EmbeddingApi api, const ApiError& error);

}  // namespace shoal::server

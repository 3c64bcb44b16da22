// Requests for embeddings: the bodies of OpenAI's POST /v1/embeddings, and of Ollama's POST
// /api/embed and the older /api/embeddings, read and checked.
//
// Thread rule: values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/api/fields.h"
#include "server/openai/completion_request.h"

namespace shoal::server {

// Texts of one request at most, as OpenAI documents it.
inline constexpr size_t kTextsMax = 2048;

enum class EmbeddingFormat { kFloat, kBase64 };

struct EmbedRequest {
  std::string model;
  std::vector<Prompt> texts;  // none is empty; no texts at all: an Ollama client loads the model
  EmbeddingFormat format = EmbeddingFormat::kFloat;
  std::optional<int64_t> dimensions{};  // at least 1; none: all
  // Of Ollama: what goes beyond the context is cut off instead of refused.
  bool truncates = false;
  std::optional<int64_t> context_wanted{};
};

ApiResult<EmbedRequest> parse_openai_embed(std::string_view body);
ApiResult<EmbedRequest> parse_ollama_embed(std::string_view body);
// The older route: one text, as "prompt".
ApiResult<EmbedRequest> parse_ollama_embeddings(std::string_view body);

}  // namespace shoal::server

// Requests of Ollama's API: the bodies of POST /api/chat and /api/generate, read and checked.
//
// Thread rule: values and pure functions.
#pragma once

#include <string>

#include "server/api/fields.h"
#include "server/chat.h"
#include "server/openai/generation_options.h"

namespace shoal::server {

struct OllamaRequest {
  std::string model;
  bool is_raw = false;      // `text` is continued as it is
  bool only_loads = false;  // nothing is asked: the client wants the model loaded
  std::string text{};       // of a raw request
  ChatInput input{};        // of any other
  std::optional<int64_t> context_wanted{};
  GenerationOptions options{};  // streams unless told otherwise
};

ApiResult<OllamaRequest> parse_ollama_chat(std::string_view body);
ApiResult<OllamaRequest> parse_ollama_generate(std::string_view body);

// The fields "options" and "keep_alive", which all of its routes have.
void read_ollama_options(Fields* fields, OllamaRequest* request);
void read_ollama_keep_alive(Fields* fields);

// What Ollama samples with where a request says nothing; no penalty on repetition.
runtime::SamplingParams ollama_sampling();

}  // namespace shoal::server

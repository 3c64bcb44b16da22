// Receivers of an answer that write it as Ollama does: JSON lines, or one object.
//
// Thread rule: by AnswerReceiver's.
#pragma once

#include <memory>
#include <string>

#include "server/api/error_response.h"
#include "server/generate/answer_json.h"
#include "server/generate/generation.h"
#include "server/http/exchange.h"
#include "server/service.h"

namespace shoal::server {

struct OllamaAnswerOptions {
  std::string model;    // as the request names it
  bool is_chat = true;  // "message" instead of "response"
  bool is_stream = true;
};

std::unique_ptr<AnswerReceiver> make_ollama_answer(const OllamaAnswerOptions& options,
                                                   std::shared_ptr<Exchange> exchange,
                                                   Service& service);

// The answer to a request that asks for nothing but the model.
Response ollama_loaded(const OllamaAnswerOptions& options);
// {"error": "..."}
Response ollama_error(const ApiError& error);
// "2026-11-30T01:40:40Z"
std::string utc_time(std::time_t time);

}  // namespace shoal::server

// Receivers of an answer that write it as OpenAI's Responses API does: a response object, or the
// documented events with their sequence numbers.
//
// Thread rule: by AnswerReceiver's.
#pragma once

#include <memory>
#include <string>

#include "server/generate/generation.h"
#include "server/http/exchange.h"
#include "server/responses/responses_request.h"
#include "server/service.h"

namespace shoal::server {

struct ResponseOptions {
  std::string model;  // as the answer names it
  RequestEcho echo;
  const text::Tokenizer* tokenizer = nullptr;
  bool is_stream = false;
  bool wants_logprobs = false;
};

std::unique_ptr<AnswerReceiver> make_response(const ResponseOptions& options,
                                              std::shared_ptr<Exchange> exchange, Service& service);

}  // namespace shoal::server

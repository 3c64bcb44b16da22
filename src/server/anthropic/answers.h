// Receivers of an answer that write it as Anthropic does, whole or as named events; and its errors.
//
//   {"type": "error", "error": {"type": ..., "message": ...}}
// Thread rule: by AnswerReceiver's.
#pragma once

#include <memory>
#include <string>

#include "server/api/error_response.h"
#include "server/generate/generation.h"
#include "server/http/exchange.h"
#include "server/service.h"

namespace shoal::server {

struct MessageAnswerOptions {
  std::string model;
  size_t prompt_tokens = 0;
  bool is_stream = false;
  bool shows_thoughts = false;
};

std::unique_ptr<AnswerReceiver> make_message_answer(const MessageAnswerOptions& options,
                                                    std::shared_ptr<Exchange> exchange,
                                                    Service& service);

// The message names the field at fault, where there is one.
Response anthropic_error(const ApiError& error);

}  // namespace shoal::server

// Receivers of answers that write them as OpenAI does: one JSON object, or a stream of events.
//
// Thread rule: by AnswerReceiver's.
#pragma once

#include <memory>
#include <string>

#include "server/generate/generation.h"
#include "server/http/exchange.h"
#include "server/openai/answer_shape.h"
#include "server/service.h"

namespace shoal::server {

struct AnswerOptions {
  std::string model;  // as the answer names it
  std::string fingerprint;
  bool is_stream = false;
  bool includes_usage = false;
  size_t choices = 1;
  size_t choices_per_prompt = 1;  // a prompt's tokens are counted once
};

std::unique_ptr<AnswerReceiver> make_answer(const AnswerOptions& options,
                                            std::unique_ptr<AnswerShape> shape,
                                            std::shared_ptr<Exchange> exchange, Service& service);

}  // namespace shoal::server

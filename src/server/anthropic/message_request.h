// MessageRequest: the bodies of Anthropic's POST /v1/messages and /v1/messages/count_tokens.
//
// Thread rule: values and pure functions.
#pragma once

#include <optional>
#include <string>

#include "server/api/fields.h"
#include "server/chat.h"
#include "server/openai/generation_options.h"

namespace shoal::server {

struct MessageRequest {
  std::string model;
  ChatInput input;
  std::optional<std::string> effort{};  // output_config.effort: what it means the model decides
  bool shows_thoughts = false;          // as blocks of their own; else they are left out
  GenerationOptions options;
};

ApiResult<MessageRequest> parse_message_request(std::string_view body);
// Only what a prompt is made of; the fields of an answer are not allowed there.
ApiResult<MessageRequest> parse_count_request(std::string_view body);

}  // namespace shoal::server

// ChatRequest: the body of POST /v1/chat/completions, read and checked.
//
// Thread rule: values and pure functions.
#pragma once

#include <string>

#include "server/api/fields.h"
#include "server/chat.h"
#include "server/openai/generation_options.h"

namespace shoal::server {

struct ChatRequest {
  std::string model;
  ChatInput input;
  GenerationOptions options;
};

ApiResult<ChatRequest> parse_chat_request(std::string_view body);

// A list of messages as the template takes it; errors go to `fields`, which has it as `name`.
Json read_messages(Fields* fields, std::string_view name);

}  // namespace shoal::server

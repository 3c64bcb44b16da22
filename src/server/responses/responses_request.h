// ResponsesRequest: the body of POST /v1/responses, OpenAI's Responses API, read and checked.
//
// Nothing is stored here: a conversation comes with every request, as its items.
// Thread rule: values and pure functions.
#pragma once

#include <string>

#include "server/api/fields.h"
#include "server/chat.h"
#include "server/generate/answer_json.h"
#include "server/openai/generation_options.h"

namespace shoal::server {

// What the answer repeats of the request, with the defaults.
struct RequestEcho {
  OrderedJson fields = OrderedJson::object();
  // JSON that the client wrote, however large, on one line.
  std::string text{};
  std::string tool_choice{};
  std::string tools{};
};

struct ResponsesRequest {
  std::string model;
  ChatInput input;  // instructions and input as messages
  GenerationOptions options;
  RequestEcho echo;
};

ApiResult<ResponsesRequest> parse_responses_request(std::string_view body);

}  // namespace shoal::server

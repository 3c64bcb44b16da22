// ResponsesRequest: the body of POST /v1/responses, OpenAI's Responses API, read and checked.
//
// Nothing is stored here: a conversation comes with every request, as its items.
// Thread rule: values and pure functions.
#pragma once

#include <string>

#include "server/api/fields.h"
#include "server/generate/answer_json.h"
#include "server/openai/generation_options.h"

namespace shoal::server {

struct ResponsesRequest {
  std::string model;
  Json template_input;  // what the chat template takes: instructions and input as messages
  GenerationOptions options;
  OrderedJson echo;  // what the answer repeats of the request, with the defaults
};

ApiResult<ResponsesRequest> parse_responses_request(std::string_view body);

}  // namespace shoal::server

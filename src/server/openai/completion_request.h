// CompletionRequest: the body of POST /v1/completions, read and checked.
//
// Thread rule: values and pure functions.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "server/api/fields.h"
#include "server/openai/generation_options.h"

namespace shoal::server {

// A text, or ids that are used as they are.
using Prompt = std::variant<std::string, std::vector<runtime::TokenId>>;

struct CompletionRequest {
  std::string model;
  std::vector<Prompt> prompts;  // at least one
  bool echoes = false;          // the prompt's text stands before each answer
  GenerationOptions options;
};

ApiResult<CompletionRequest> parse_completion_request(std::string_view body);

// A string, a list of strings, a list of ids, a list of lists of ids; no more than prompts_max.
std::vector<Prompt> read_prompts(Fields* fields, std::string_view name, size_t prompts_max);

}  // namespace shoal::server

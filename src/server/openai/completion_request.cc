#include "server/openai/completion_request.h"

#include <fmt/format.h>

#include <utility>

#include "server/generate/answer_format.h"

namespace shoal::server {
namespace {

// What the API documents where a request says nothing.
constexpr uint32_t kDefaultTokensMax = 16;

constexpr std::string_view kPromptForms =
    "must be a string, a list of strings, a list of token ids, or a list of such lists";

bool is_id_list(const Json& json) {
  return json.is_array() && !json.empty() && json.front().is_number();
}

Prompt read_prompt(const Json& json, Fields* fields, std::string_view name) {
  if (json.is_string()) return json.get<std::string>();
  std::vector<runtime::TokenId> ids;
  if (!is_id_list(json)) {
    fields->fail(name, kPromptForms);
    return ids;
  }
  ids.reserve(json.size());
  for (const Json& id : json) {
    const bool is_good = id.is_number_integer() && id >= 0 && id <= INT32_MAX;
    if (!is_good) {
      fields->fail(name, "token ids must be integers from 0");
      return ids;
    }
    ids.push_back(id.get<runtime::TokenId>());
  }
  return ids;
}

void read_logprobs(Fields* fields, GenerationOptions* options) {
  const auto count =
      fields->integer("logprobs", {.max = runtime::GenerationRequest::kLogprobsTopMax});
  options->wants_logprobs = count.has_value();
  options->logprobs_top = static_cast<uint32_t>(count.value_or(0));
}

}  // namespace

std::vector<Prompt> read_prompts(Fields* fields, std::string_view name, size_t prompts_max) {
  const Json* json = fields->any(name);
  if (json == nullptr) {
    fields->fail(name, kPromptForms);
    return {};
  }
  if (json->is_string() || is_id_list(*json)) return {read_prompt(*json, fields, name)};
  if (!json->is_array() || json->empty() || json->size() > prompts_max) {
    fields->fail(name, fmt::format("{}; of at most {}", kPromptForms, prompts_max));
    return {};
  }
  std::vector<Prompt> prompts;
  for (const Json& prompt : *json) prompts.push_back(read_prompt(prompt, fields, name));
  return prompts;
}

ApiResult<CompletionRequest> parse_completion_request(std::string_view body) {
  auto json = parse_body(body);
  if (!json.is_ok()) return json.error();
  Fields fields(*json);
  CompletionRequest request;
  if (auto model = fields.text("model")) {
    request.model = std::move(*model);
  } else {
    fields.fail("model", "must be a string: GET /v1/models has the names");
  }
  request.prompts = read_prompts(&fields, "prompt", kChoicesMax);
  read_generation_options(&fields, &request.options);
  request.options.tokens_max = static_cast<uint32_t>(
      fields.integer("max_tokens", {.min = 1, .max = INT32_MAX}).value_or(kDefaultTokensMax));
  read_logprobs(&fields, &request.options);
  request.options.grammar = read_openai_format(&fields, body);
  request.echoes = fields.boolean("echo").value_or(false);
  if (request.echoes && request.options.wants_logprobs) {
    fields.fail("echo", "does not go with logprobs: the prompt's own are not computed");
  }
  const auto best_of = fields.integer("best_of", {.min = 1, .max = kChoicesMax});
  if (best_of && *best_of != request.options.choices) {
    fields.fail("best_of", "is served with the value of n only: every answer is returned");
  }
  fields.refuse_unless("suffix", {""}, "is not served: answers go on from the prompt only");
  if (request.prompts.size() * request.options.choices > kChoicesMax) {
    fields.fail("n", fmt::format("times the prompts must be at most {}", kChoicesMax));
  }
  if (auto error = fields.finish()) return std::move(*error);
  return request;
}

}  // namespace shoal::server

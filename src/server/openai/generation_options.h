// GenerationOptions: what a request says about how its answers are chosen and ended.
//
// Read in one place for every OpenAI route; every field that is documented is honoured or refused
// by name (docs/api.md has the list).
// Thread rule: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/sampler.h"
#include "server/api/fields.h"
#include "server/generate/answer_grammar.h"
#include "server/generate/generation.h"

namespace shoal::server {

// Answers to one request at most.
inline constexpr uint32_t kChoicesMax = 64;

struct GenerationOptions {
  runtime::SamplingParams sampling{};
  std::vector<std::string> stops{};
  std::optional<uint32_t> tokens_max{};  // none: until the context is full
  uint32_t choices = 1;
  bool is_stream = false;
  bool includes_usage = false;
  bool ignores_end = false;
  bool wants_logprobs = false;
  uint32_t logprobs_top = 0;
  std::optional<AnswerGrammar> grammar{};  // what the answers must be; none: anything
};

// The least repetition penalty that is served: what float32 holds, with room.
inline constexpr double kRepetitionPenaltyMin = 0.01;

// top_p of 0 leaves the best token; so does what float32 cannot tell from it.
void settle_top_p(runtime::SamplingParams* sampling);

// The fields that all routes have, except for logprobs and the limits on tokens.
void read_generation_options(Fields* fields, GenerationOptions* options);

// A request for every answer to this prompt, each with a seed of its own.
std::vector<Choice> make_choices(const GenerationOptions& options,
                                 const std::vector<runtime::TokenId>& prompt,
                                 const std::vector<runtime::TokenId>& end_tokens);

// Ids outside of the vocabulary.
std::optional<ApiError> check_against_model(const GenerationOptions& options, size_t token_count);

}  // namespace shoal::server

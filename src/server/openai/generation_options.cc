#include "server/openai/generation_options.h"

#include <fmt/format.h>

#include <charconv>

namespace shoal::server {
namespace {

constexpr float kBiasMax = 100;
constexpr size_t kBiasesMax = 4096;

void read_stops(Fields* fields, std::vector<std::string>* stops) {
  const Json* value = fields->any("stop");
  if (value == nullptr) return;
  const Json list = value->is_array() ? *value : Json::array({*value});
  if (list.size() > runtime::StopMatcher::kStopsMax) {
    fields->fail("stop",
                 fmt::format("must have at most {} strings", runtime::StopMatcher::kStopsMax));
    return;
  }
  for (const Json& stop : list) {
    const std::string* text = stop.get_ptr<const std::string*>();
    if (text == nullptr || text->empty()) {
      fields->fail("stop", "must be a string that is not empty, or a list of such");
    } else if (text->size() > runtime::StopMatcher::kStopBytesMax) {
      fields->fail("stop", fmt::format("a string must have at most {} bytes",
                                       runtime::StopMatcher::kStopBytesMax));
    } else {
      stops->push_back(*text);
    }
  }
}

void read_biases(Fields* fields, std::vector<runtime::LogitBias>* biases) {
  const Json* value = fields->object("logit_bias");
  if (value == nullptr) return;
  if (value->size() > kBiasesMax) {
    fields->fail("logit_bias", fmt::format("must have at most {} entries", kBiasesMax));
    return;
  }
  for (const auto& [key, bias] : value->items()) {
    runtime::TokenId id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0) {
      fields->fail("logit_bias", "its keys must be token ids, such as \"42\"");
      return;
    }
    const bool is_good =
        bias.is_number() && bias.get<double>() >= -kBiasMax && bias.get<double>() <= kBiasMax;
    if (!is_good) {
      fields->fail("logit_bias", "its values must be numbers from -100 to 100");
      return;
    }
    biases->push_back({.id = id, .bias = bias.get<float>()});
  }
}

// As documented: any integer of 64 bits; -1 is a random one, as local clients mean it.
void read_seed(Fields* fields, std::optional<uint64_t>* seed) {
  const auto value = fields->integer("seed", {.min = INT64_MIN});
  if (value && *value != -1) *seed = static_cast<uint64_t>(*value);
}

void read_stream(Fields* fields, GenerationOptions* options) {
  options->is_stream = fields->boolean("stream").value_or(false);
  const Json* value = fields->object("stream_options");
  if (value == nullptr) return;
  if (!options->is_stream) {
    fields->fail("stream_options", "goes with stream: true only");
    return;
  }
  Fields stream(*value, fields->path_of("stream_options"));
  options->includes_usage = stream.boolean("include_usage").value_or(false);
  stream.refuse_unless("include_obfuscation", {false}, "is not served; leave it out");
  if (auto error = stream.finish()) fields->fail(std::move(*error));
}

void read_float(Fields* fields, std::string_view name, NumberRange range, float* value) {
  if (const auto number = fields->number(name, range)) *value = static_cast<float>(*number);
}

}  // namespace

void settle_top_p(runtime::SamplingParams* sampling) {
  if (sampling->top_p > 0) return;
  sampling->top_p = 1;
  sampling->top_k = 1;
}

void read_generation_options(Fields* fields, GenerationOptions* options) {
  runtime::SamplingParams& sampling = options->sampling;
  read_float(fields, "temperature", {.max = 2}, &sampling.temperature);
  read_float(fields, "top_p", {.max = 1}, &sampling.top_p);
  read_float(fields, "min_p", {.max = 1}, &sampling.min_p);
  read_float(fields, "repetition_penalty", {.min = kRepetitionPenaltyMin, .max = 10},
             &sampling.repetition_penalty);
  read_float(fields, "presence_penalty", {.min = -2, .max = 2}, &sampling.presence_penalty);
  read_float(fields, "frequency_penalty", {.min = -2, .max = 2}, &sampling.frequency_penalty);
  if (const auto top_k = fields->integer("top_k", {.min = -1, .max = INT32_MAX})) {
    sampling.top_k = *top_k < 0 ? 0 : static_cast<int32_t>(*top_k);  // vLLM's "off" is -1
  }
  settle_top_p(&sampling);
  read_seed(fields, &sampling.seed);
  read_biases(fields, &sampling.logit_bias);
  read_stops(fields, &options->stops);
  read_stream(fields, options);
  options->choices =
      static_cast<uint32_t>(fields->integer("n", {.min = 1, .max = kChoicesMax}).value_or(1));
  options->ignores_end = fields->boolean("ignore_eos").value_or(false);
  (void)fields->text("user");  // names the client's own user: nothing here depends on it
}

std::vector<Choice> make_choices(const GenerationOptions& options,
                                 const std::vector<runtime::TokenId>& prompt,
                                 const std::vector<runtime::TokenId>& end_tokens) {
  std::vector<Choice> choices(options.choices);
  for (size_t i = 0; i < choices.size(); ++i) {
    runtime::GenerationRequest& request = choices[i].request;
    request.prompt = prompt;
    request.sampling = options.sampling;
    if (request.sampling.seed) *request.sampling.seed += i;
    request.tokens_max = options.tokens_max.value_or(0);
    if (options.ignores_end) {
      request.sampling.banned = end_tokens;
    } else {
      request.end_tokens = end_tokens;
    }
    request.want_logprobs = options.wants_logprobs;
    request.logprobs_top = options.logprobs_top;
    choices[i].stops = options.stops;
  }
  return choices;
}

std::optional<ApiError> check_against_model(const GenerationOptions& options, size_t token_count) {
  for (const runtime::LogitBias& bias : options.sampling.logit_bias) {
    if (static_cast<size_t>(bias.id) < token_count) continue;
    return ApiError{.message = fmt::format("logit_bias: token {} is not in the vocabulary of {}",
                                           bias.id, token_count),
                    .param = "logit_bias"};
  }
  return std::nullopt;
}

}  // namespace shoal::server

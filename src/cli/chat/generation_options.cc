#include "cli/chat/generation_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdlib>
#include <limits>

namespace shoal::cli {
namespace {

// As many as a token's number can tell apart.
constexpr size_t kTokensMax = size_t{1} << 31;

Result<runtime::LogitBias> parse_logit_bias(const std::string& text) {
  const Status malformed = Status::request(fmt::format(
      "--logit-bias {} is not ID=BIAS with a token's number and a bias, such as 42=-5", text));
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals + 1 == text.size()) return malformed;
  runtime::LogitBias bias;
  const auto [end, error] = std::from_chars(text.data(), text.data() + equals, bias.id);
  if (error != std::errc() || end != text.data() + equals || bias.id < 0) return malformed;
  char* number_end = nullptr;
  bias.bias = std::strtof(text.c_str() + equals + 1, &number_end);
  if (*number_end != '\0') return malformed;
  return bias;
}

// What is wrong with a number; its range is validate()'s to check.
std::string check_number(const std::string& text) {
  float value = 0;
  if (CLI::detail::lexical_cast(text, value)) return {};
  return fmt::format("'{}' is no number", text);
}

}  // namespace

runtime::SamplingParams default_sampling() {
  runtime::SamplingParams params;
  params.temperature = 0.7F;
  params.top_p = 0.95F;
  params.min_p = 0.05F;
  return params;
}

void add_generation_options(CLI::App& command, GenerationOptions* options) {
  constexpr const char* kGroup = "Sampling";
  runtime::SamplingParams& sampling = options->sampling;
  const auto add_number = [&](const char* name, auto& value, const char* description) {
    command.add_option(name, value, description)
        ->group(kGroup)
        ->check(check_number)
        ->type_name("X")
        ->capture_default_str();
  };
  add_number("--temperature", sampling.temperature, "0 always takes the best token");
  command.add_option("--top-k", sampling.top_k, "Choose among the K best tokens; 0: all")
      ->group(kGroup)
      ->check(CLI::Range(0, std::numeric_limits<int32_t>::max()))
      ->type_name("X")
      ->capture_default_str();
  add_number("--top-p", sampling.top_p, "Choose among the best tokens of this total probability");
  add_number("--min-p", sampling.min_p, "Leave out tokens below this share of the best one's");
  add_number("--repetition-penalty", sampling.repetition_penalty,
             "Weaken tokens of prompt and answer; 1: off");
  add_number("--presence-penalty", sampling.presence_penalty,
             "Weaken tokens that the answer already has; 0: off");
  add_number("--frequency-penalty", sampling.frequency_penalty,
             "Weaken tokens by how often the answer has them; 0: off");
  command.add_option("--seed", options->seed, "0 to 2^64-1 repeats a run; -1: a random one")
      ->group(kGroup)
      ->type_name("N")
      ->capture_default_str();
  command.add_option("--logit-bias", options->logit_bias, "ID=BIAS, added to a token's logit")
      ->group(kGroup)
      ->type_name("ID=BIAS")
      ->allow_extra_args(false);
  command
      .add_option("-n,--max-tokens", options->tokens_max,
                  "End an answer after N tokens; default: when the model ends it")
      ->group(kGroup)
      ->check(CLI::Range(1U, std::numeric_limits<uint32_t>::max()))
      ->type_name("N");
  command.add_option("--stop", options->stops, "End an answer before this text; may be repeated")
      ->group(kGroup)
      ->type_name("TEXT")
      ->allow_extra_args(false);
  command
      .add_flag("--ignore-end", options->ignores_end, "Never choose a token that ends the answer")
      ->group(kGroup);
}

Result<runtime::SamplingParams> sampling_params(const GenerationOptions& options) {
  runtime::SamplingParams params = options.sampling;
  auto seed = runtime::parse_seed(options.seed);
  if (!seed.is_ok()) return seed.status().with_context("--seed");
  params.seed = *seed;
  for (const std::string& text : options.logit_bias) {
    ASSIGN_OR_RETURN(const runtime::LogitBias bias, parse_logit_bias(text));
    params.logit_bias.push_back(bias);
  }
  // Whether the model has the tokens is known when it is loaded.
  RETURN_IF_ERROR(runtime::validate(params, kTokensMax));
  return params;
}

}  // namespace shoal::cli

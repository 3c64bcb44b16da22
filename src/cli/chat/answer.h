// One answer of a model: generated, turned into text as it comes, cut at stop strings.
//
// Thread rule: the thread of the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/chat/generation_options.h"
#include "cli/support/model_setup.h"

namespace shoal::cli {

struct AnswerRequest {
  runtime::SessionId session = 0;
  std::span<const int32_t> prompt;  // the whole conversation so far
  const GenerationOptions& options;
  // Called with whole characters as they are certain; false ends the answer.
  std::function<bool(std::string_view)> on_text;
  std::function<void(size_t done, size_t total)> on_prefill;  // may be empty
};

struct Answer {
  std::string text;
  std::optional<std::string> stop;  // the stop string that ended it
  runtime::GenerateResult result;
  bool is_drawn = false;  // else every token was the best one, whatever the seed
  // Of this answer alone.
  collective::Counters collectives;
  std::optional<Nanoseconds> first_token;  // when it was chosen, on SteadyClock
};

// A signal (SignalScope) cancels it; what there is by then is the answer.
Result<Answer> generate_answer(LoadedModel& loaded, const AnswerRequest& request);

Speed prefill_speed(const Answer& answer);
Speed decode_speed(const Answer& answer);

// One line of figures: speeds, seed, share of time in collectives.
std::string stats_line(LoadedModel& loaded, const Answer& answer);
// One line of each node's bytes.
std::string nodes_line(LoadedModel& loaded);

}  // namespace shoal::cli

#include "cli/chat/answer.h"

#include <fmt/format.h>

#include "cli/support/format.h"
#include "cli/support/signals.h"
#include "runtime/stop_matcher.h"
#include "text/detokenizer.h"

namespace shoal::cli {
namespace {

// The text of an answer as its tokens come.
class TextStream {
 public:
  TextStream(const text::Tokenizer& tokenizer, runtime::StopMatcher matcher,
             const std::function<bool(std::string_view)>& sink)
      : detokenizer_(tokenizer, {.continues = true}), matcher_(std::move(matcher)), sink_(sink) {}

  // False when the answer should end.
  bool push(int32_t id) { return emit(matcher_.push(detokenizer_.push(id))); }

  void finish() {
    if (matcher_.matched().has_value()) return;
    emit(matcher_.push(detokenizer_.finish()));
    if (!matcher_.matched().has_value()) emit(matcher_.finish());
  }

  std::string take_text() { return std::move(text_); }
  std::optional<std::string> stop() const {
    const auto matched = matcher_.matched();
    return matched ? std::optional<std::string>(*matched) : std::nullopt;
  }

 private:
  bool emit(const std::string& piece) {
    text_ += piece;
    const bool wants_more = piece.empty() || sink_(piece);
    return wants_more && !matcher_.matched().has_value();
  }

  text::Detokenizer detokenizer_;
  runtime::StopMatcher matcher_;
  const std::function<bool(std::string_view)>& sink_;
  std::string text_;
};

}  // namespace

Result<Answer> generate_answer(LoadedModel& loaded, const AnswerRequest& request) {
  const std::vector<int32_t>& end_tokens = loaded.text().tokenizer->special().end_of_generation;
  ASSIGN_OR_RETURN(runtime::StopMatcher matcher,
                   runtime::StopMatcher::create(request.options.stops));
  TextStream stream(*loaded.text().tokenizer, std::move(matcher), request.on_text);
  runtime::GenerateRequest generate;
  generate.session = request.session;
  generate.prompt = request.prompt;
  ASSIGN_OR_RETURN(generate.sampling, sampling_params(request.options));
  if (request.options.ignores_end) {
    generate.sampling.banned = end_tokens;
  } else {
    generate.end_tokens = end_tokens;
  }
  generate.tokens_max = request.options.tokens_max;
  generate.cancel = &SignalScope::stop_flag();
  Answer answer;
  answer.is_drawn = generate.sampling.temperature >= runtime::Sampler::kTemperatureMin;
  generate.on_token = [&](runtime::TokenId id) {
    if (!answer.first_token) answer.first_token = SteadyClock::instance().now();
    return stream.push(id);
  };
  generate.on_prefill = request.on_prefill;

  const collective::Counters before = loaded.engine().stats().collectives;
  ASSIGN_OR_RETURN(answer.result, loaded.engine().generate(generate));
  const collective::Counters after = loaded.engine().stats().collectives;
  answer.collectives = {.operations = after.operations - before.operations,
                        .bytes = after.bytes - before.bytes,
                        .seconds = after.seconds - before.seconds};
  stream.finish();
  answer.stop = stream.stop();
  answer.text = stream.take_text();
  return answer;
}

Speed prefill_speed(const Answer& answer) {
  return {.tokens = answer.result.prompt_tokens - answer.result.reused_tokens,
          .seconds = answer.result.prefill_seconds};
}

Speed decode_speed(const Answer& answer) {
  return {.tokens = answer.result.decode_steps, .seconds = answer.result.decode_seconds};
}

std::string stats_line(LoadedModel& loaded, const Answer& answer) {
  const Speed prefill = prefill_speed(answer);
  const Speed decode = decode_speed(answer);
  std::string line = fmt::format(
      "prefill {} tokens at {:.1f} tok/s · decode {} tokens at {:.1f} tok/s", prefill.tokens,
      tokens_per_second(prefill), answer.result.tokens.size(), tokens_per_second(decode));
  const size_t nodes = loaded.plan().ranks.size();
  if (nodes > 1) {
    const double total = prefill.seconds + decode.seconds;
    line +=
        fmt::format(" · {} nodes over {}, {:.0f} % of the time in collectives", nodes,
                    loaded.link_name(), total > 0 ? answer.collectives.seconds / total * 100 : 0.0);
  }
  return answer.is_drawn ? line + fmt::format(" · seed {}", answer.result.seed) : line;
}

std::string nodes_line(LoadedModel& loaded) {
  std::string line;
  for (const runtime::NodeStats& node : loaded.engine().stats().nodes) {
    line += fmt::format("{}{}: weights {}, KV cache {}", line.empty() ? "" : " · ", node.name,
                        format_bytes(node.weight_bytes), format_bytes(node.kv_bytes));
  }
  return line;
}

}  // namespace shoal::cli

#include "cli/bench/model_runs.h"

#include <algorithm>
#include <span>

#include "cli/support/signals.h"

namespace shoal::cli {

using tensor::Phase;
using tensor::Stage;

// A linear congruential generator (Knuth, MMIX).
std::vector<int32_t> meaningless_tokens(size_t count, size_t vocabulary) {
  std::vector<int32_t> tokens;
  uint64_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    tokens.push_back(static_cast<int32_t>((state >> 33U) % vocabulary));
  }
  return tokens;
}

double StageFigures::share(Phase phase) const {
  double seconds = 0;
  for (const auto& rank : phase_seconds) seconds += rank[static_cast<size_t>(phase)];
  return worker_seconds > 0 ? seconds / worker_seconds : 0;
}

Result<runtime::GenerateResult> ModelRuns::generate(const Part& part) {
  runtime::GenerateRequest request;
  request.session = session_;
  request.prompt = std::span(tokens_).first(part.prompt);
  request.sampling.temperature = 0;
  request.tokens_max = part.answer;
  request.cancel = &SignalScope::stop_flag();
  ASSIGN_OR_RETURN(runtime::GenerateResult result, loaded_.engine().generate(request));
  if (SignalScope::should_stop()) return Status::request("stopped");
  return result;
}

Result<double> ModelRuns::warm_up() {
  RETURN_IF_ERROR(open(0));
  ASSIGN_OR_RETURN(const runtime::GenerateResult result,
                   generate({.prompt = shape_.prompt_tokens, .answer = 1}));
  RETURN_IF_ERROR(generate({.prompt = 1, .answer = shape_.answer_tokens / 4 + 1}).status());
  RETURN_IF_ERROR(close());
  return result.prefill_seconds + result.decode_seconds;
}

Status ModelRuns::open(uint32_t depth) {
  depth_ = depth;
  tokens_ = meaningless_tokens(size_t{depth} + shape_.prompt_tokens,
                               loaded_.text().tokenizer->vocabulary_size());
  ASSIGN_OR_RETURN(session_, loaded_.engine().open_session());
  if (depth == 0) return Status::ok();
  return generate({.prompt = depth, .answer = 1}).status();
}

Status ModelRuns::close() { return loaded_.engine().close_session(session_); }

Status ModelRuns::run(const Part& part, Stage stage, StageFigures* figures) {
  runtime::Engine& engine = loaded_.engine();
  engine.reset_stats();
  RETURN_IF_ERROR(engine.take_times().status());
  ASSIGN_OR_RETURN(const runtime::GenerateResult result, generate(part));
  const collective::Counters counters = engine.stats().collectives;
  ASSIGN_OR_RETURN(const std::vector<runtime::RankTimes> times, engine.take_times());
  const bool is_prefill = stage == Stage::kPrefill;
  const auto tokens = static_cast<double>(is_prefill ? result.prompt_tokens - result.reused_tokens
                                                     : result.decode_steps);
  figures->tokens_per_second.add(tokens /
                                 (is_prefill ? result.prefill_seconds : result.decode_seconds));
  figures->collective_operations = counters.operations;
  figures->collective_bytes = counters.bytes;
  // A run of decode has one step more than decode_seconds: the last token of the context.
  const double seconds =
      is_prefill ? result.prefill_seconds : result.prefill_seconds + result.decode_seconds;
  figures->phase_seconds.resize(times.size());
  for (size_t rank = 0; rank < times.size(); ++rank) {
    figures->worker_seconds += seconds * times[rank].workers;
    for (size_t phase = 0; phase < tensor::kPhases; ++phase) {
      figures->phase_seconds[rank][phase] += times[rank].of(stage, static_cast<Phase>(phase));
    }
  }
  return Status::ok();
}

Status ModelRuns::measure(DepthFigures* figures) {
  // A session keeps what its next prompt begins with: the depth stays, the rest is forgotten.
  ASSIGN_OR_RETURN(const auto held, loaded_.engine().session_tokens(session_));
  RETURN_IF_ERROR(loaded_.engine().truncate(session_, std::min<size_t>(depth_, held.size())));
  RETURN_IF_ERROR(run({.prompt = size_t{depth_} + shape_.prompt_tokens, .answer = 1},
                      Stage::kPrefill, &figures->prefill));
  return run({.prompt = std::max<size_t>(depth_, 1), .answer = shape_.answer_tokens + 1},
             Stage::kDecode, &figures->decode);
}

}  // namespace shoal::cli

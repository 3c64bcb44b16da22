// Speed of the scheduler on one rank: answers at once, a prompt beside answers, a follow-up turn,
// drafted tokens: what they cost, and what they bring where a model repeats its prompt.
//
//   serve_bench [MODEL] [--benchmark_...]
// MODEL is a GGUF file or a model's folder; without one, random weights of SmolLM2-135M's shape.
// The prompts are meaningless tokens: the time does not depend on what they say.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/os/cpus.h"
#include "collective/group.h"
#include "fabric/in_process.h"
#include "model/model.h"
#include "model/testing/temp_folder.h"
#include "runtime/serve/batcher.h"
#include "runtime/testing/test_model.h"

namespace shoal::runtime {
namespace {

constexpr uint32_t kContext = 32768;

class Ignore final : public TokenSink {
 public:
  bool on_token(const GeneratedToken&) override {
    ++tokens;
    return true;
  }
  void on_finished(const GenerationResult& result) override {
    CHECK_MSG(result.status.is_ok(), result.status.message().c_str());
    is_finished = true;
  }
  size_t tokens = 0;
  bool is_finished = false;
};

// Without drafts, so that a step is a token of each answer.
SchedulerOptions without_drafts(bool prefix_cache) {
  SchedulerOptions options;
  options.prefix_cache = prefix_cache;
  options.speculation = Speculation::kOff;
  return options;
}

// An engine of this process with a batcher on it.
class World {
 public:
  World(const model::Model& model, const SchedulerOptions& scheduler)
      : fabric_(fabric::make_single_fabric("bench")), group_(*fabric_) {
    plan::PlanRequest request;
    request.context = kContext;
    auto plan = plan::make_plan(model.config, plan::weight_bytes(model.tensors), request);
    CHECK_MSG(plan.is_ok(), plan.status().message().c_str());
    EngineOptions options;
    options.threads = usable_cpus();
    options.sessions_max = 64;
    auto engine = Engine::create(model, *plan, group_, options);
    CHECK_MSG(engine.is_ok(), engine.status().message().c_str());
    engine_ = std::move(engine).value();
    batcher_ = std::make_unique<Batcher>(*engine_, scheduler);
  }

  std::shared_ptr<Ignore> add(std::vector<TokenId> prompt, uint32_t tokens_max) {
    auto sink = std::make_shared<Ignore>();
    GenerationRequest request;
    request.prompt = std::move(prompt);
    request.sampling.temperature = 0;
    request.tokens_max = tokens_max;
    request.sink = sink;
    batcher_->add(++last_id_, std::move(request), SteadyClock::instance().now());
    return sink;
  }
  // As many streams of answers, under way.
  std::vector<std::shared_ptr<Ignore>> streams(size_t count) {
    std::vector<std::shared_ptr<Ignore>> sinks;
    sinks.reserve(count);
    for (size_t i = 0; i < count; ++i) sinks.push_back(add(prompt(i, 32), 0));
    while (std::any_of(sinks.begin(), sinks.end(), [](auto& sink) { return sink->tokens == 0; })) {
      step();
    }
    return sinks;
  }
  std::vector<TokenId> prompt(size_t kind, size_t count) const {
    std::vector<TokenId> tokens(count);
    const size_t vocabulary = engine_->token_count();
    for (size_t i = 0; i < count; ++i) {
      tokens[i] = static_cast<TokenId>((kind * 7919 + i * 104729 + i * i * 31) % vocabulary);
    }
    return tokens;
  }
  void step() {
    const Status status = batcher_->step();
    CHECK_MSG(status.is_ok(), status.message().c_str());
  }
  Engine& engine() { return *engine_; }
  SchedulerStats stats() const {
    SchedulerStats stats;
    batcher_->write_stats(&stats);
    return stats;
  }
  // Of the workers' time since the last call, what each phase of decoding took.
  RankTimes times() {
    auto times = engine_->take_times();
    CHECK_MSG(times.is_ok(), times.status().message().c_str());
    return times->front();
  }

 private:
  std::unique_ptr<fabric::Fabric> fabric_;
  collective::Group group_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Batcher> batcher_;
  RequestId last_id_ = 0;
};

double seconds_now() {
  return std::chrono::duration<double>(SteadyClock::instance().now()).count();
}

// Tokens per second over all streams, and where the workers' time goes.
void decode(benchmark::State& state, const model::Model& model) {
  World world(model, without_drafts(/*prefix_cache=*/true));
  const auto count = static_cast<size_t>(state.range(0));
  const auto sinks = world.streams(count);
  (void)world.times();
  for ([[maybe_unused]] auto _ : state) world.step();
  const RankTimes times = world.times();
  double busy = 0;
  for (size_t i = 1; i < tensor::kPhases; ++i) {
    busy += times.of(tensor::Stage::kDecode, static_cast<tensor::Phase>(i));
  }
  for (const auto phase : {tensor::Phase::kMatmul, tensor::Phase::kAttention,
                           tensor::Phase::kSampling, tensor::Phase::kBarrier}) {
    state.counters[std::string(tensor::phase_name(phase))] =
        times.of(tensor::Stage::kDecode, phase) / busy;
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(count));
}

// The longest time without a token of eight streams while a prompt of 1,500 tokens is computed.
void prompt_beside_answers(benchmark::State& state, const model::Model& model) {
  World world(model, without_drafts(/*prefix_cache=*/false));
  const auto sinks = world.streams(8);
  for (int i = 0; i < 5; ++i) world.step();
  double longest = 0;
  size_t kind = 100;
  for ([[maybe_unused]] auto _ : state) {
    const auto sink = world.add(world.prompt(++kind, 1500), 1);
    while (!sink->is_finished) {
      const double start = seconds_now();
      world.step();
      longest = std::max(longest, seconds_now() - start);
    }
  }
  state.SetItemsProcessed(state.iterations() * 1500);
  state.counters["gap_max_ms"] = longest * 1000;
}

// The time to the first token of a turn of 16 tokens after a conversation of 1,000.
void follow_up(benchmark::State& state, const model::Model& model) {
  World world(model, without_drafts(/*prefix_cache=*/state.range(0) != 0));
  size_t kind = 0;
  for ([[maybe_unused]] auto _ : state) {
    std::vector<TokenId> conversation = world.prompt(++kind, 1000);
    state.PauseTiming();
    const auto first = world.add(conversation, 1);
    while (!first->is_finished) world.step();
    const std::vector<TokenId> turn = world.prompt(kind + 5000, 16);
    conversation.insert(conversation.end(), turn.begin(), turn.end());
    state.ResumeTiming();
    const auto second = world.add(conversation, 1);
    while (!second->is_finished) world.step();
  }
}

// A step of so many answers with so many drafted tokens each, after 256 tokens, all taken back.
void drafted_rows(benchmark::State& state, const model::Model& model) {
  World world(model, without_drafts(/*prefix_cache=*/false));
  Engine& engine = world.engine();
  std::vector<AdvanceItem> items(static_cast<size_t>(state.range(0)));
  const std::vector<TokenId> tokens =
      world.prompt(1, 256 + 1 + static_cast<size_t>(state.range(1)));
  const auto must = [](const Status& status) {
    CHECK_MSG(status.is_ok(), status.message().c_str());
  };
  for (AdvanceItem& item : items) {
    const auto session = engine.open_session();
    must(session.status());
    item = {*session, std::span(tokens).first(256), Outputs::kNone};
    must(engine.advance({&item, 1}));
    item.tokens = std::span(tokens).subspan(256);
    item.outputs = Outputs::kAll;
  }
  for ([[maybe_unused]] auto _ : state) {
    must(engine.advance(items));
    for (const AdvanceItem& item : items) must(engine.truncate(item.session, 256));
  }
}

// One answer after a prompt that says the same 60 tokens again and again: the answer of a model
// that has learnt to copy goes on with them.
void repetition(benchmark::State& state, const model::Model& model) {
  SchedulerOptions scheduler = without_drafts(/*prefix_cache=*/false);
  if (state.range(0) != 0) scheduler.speculation = Speculation::kNgram;
  World world(model, scheduler);
  size_t kind = 0;
  for ([[maybe_unused]] auto _ : state) {
    state.PauseTiming();
    const std::vector<TokenId> said = world.prompt(++kind, 60);
    std::vector<TokenId> prompt(210);
    for (size_t i = 0; i < prompt.size(); ++i) prompt[i] = said[i % said.size()];
    const auto sink = world.add(prompt, 120);
    while (sink->tokens == 0) world.step();
    state.ResumeTiming();
    while (!sink->is_finished) world.step();
  }
  const SchedulerStats stats = world.stats();
  state.SetItemsProcessed(state.iterations() * 119);
  state.counters["drafted"] = static_cast<double>(stats.drafted_tokens);
  state.counters["accepted"] = static_cast<double>(stats.accepted_tokens);
}

void register_all(const model::Model& model) {
  benchmark::RegisterBenchmark("decode", decode, std::ref(model))
      ->Arg(1)
      ->Arg(8)
      ->Arg(32)
      ->Iterations(48)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("prompt_beside_answers", prompt_beside_answers, std::ref(model))
      ->Iterations(2)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("follow_up/cache", follow_up, std::ref(model))
      ->Arg(0)
      ->Arg(1)
      ->Iterations(3)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("drafted_rows", drafted_rows, std::ref(model))
      ->ArgsProduct({{1, 4}, {0, 1, 2, 3, 5, 7}})
      ->ArgsProduct({{1}, {8, 11, 15}})
      ->Iterations(48)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("repetition/drafts", repetition, std::ref(model))
      ->Arg(0)
      ->Arg(1)
      ->Iterations(6)
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace
}  // namespace shoal::runtime

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const shoal::model::testing::TempFolder folder;
  shoal::runtime::testing::RandomModel random;
  random.dtype = shoal::tensor::DType::kQ4_1;
  random.layers = 30;
  random.head_dim = 64;
  random.heads = 9;
  random.kv_heads = 3;
  random.ffn = 1536;
  random.vocab = 49152;
  const auto model = argc > 1 ? shoal::runtime::testing::load_or_die(argv[1]) : random.make(folder);
  shoal::runtime::register_all(*model);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

// Cost of constrained output: building the trie, compiling, one mask, one choice under a mask.
//
//   grammar_bench MODEL [--benchmark_...]
// MODEL is a GGUF file or a folder with a tokenizer.json. Masks are those along an answer that the
// tokenizer has cut into its own tokens, as a model mostly does.
#include <benchmark/benchmark.h>
#include <fmt/core.h>

#include <array>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "cli/support/text_setup.h"
#include "runtime/sampler.h"
#include "text/grammar/grammar.h"

namespace shoal {
namespace {

using text::GrammarSource;

struct Case {
  const char* name;
  GrammarSource source;
  std::string answer;
};

std::vector<Case> cases() {
  const std::string story =
      "Once upon a time there was a lighthouse on a cliff, and its keeper, who was old, wrote down "
      "every ship that passed.";
  return {{"schema",
           {.kind = GrammarSource::Kind::kJsonSchema, .text = R"({"type": "object", "properties": {
           "name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 120},
           "tags": {"type": "array", "items": {"enum": ["new", "old", "blue"]}},
           "address": {"type": "object", "properties": {"city": {"type": "string"},
             "zip": {"type": "string", "pattern": "^[0-9]{5}$"}}, "required": ["city", "zip"],
             "additionalProperties": false}},
           "required": ["name", "age", "tags", "address"], "additionalProperties": false})"},
           R"({"name": "Anna Lee", "age": 34, "tags": ["new", "blue"], )"
           R"("address": {"city": "Paris", "zip": "75001"}})"},
          {"any_object", text::json_object_grammar(),
           R"({"title": ")" + story + R"(", "pages": [1, 2, 3.5e2], "done": true})"},
          {"string",
           {.kind = GrammarSource::Kind::kJsonSchema, .text = R"({"type": "string"})"},
           "\"" + story + "\""},
          {"bounded_string",
           {.kind = GrammarSource::Kind::kJsonSchema,
            .text = R"({"type": "string", "maxLength": 200})"},
           "\"" + story + "\""},
          {"expression",
           {.kind = GrammarSource::Kind::kRegex, .text = "([A-Za-z, ]{1,40}\\.? ?)+"},
           story},
          {"gbnf",
           {.kind = GrammarSource::Kind::kGbnf,
            .text = "root ::= \"(\" (word | root)* \")\"\nword ::= [a-z]+ \" \"?\n"},
           "(once upon (a time there was)a (light (house)))"}};
}

class World {
 public:
  explicit World(const std::string& path) {
    auto parts = cli::load_text(path);
    CHECK_MSG(parts.is_ok(), parts.status().message().c_str());
    tokenizer = std::move(parts->tokenizer);
    compiler = std::move(text::GrammarCompiler::create(*tokenizer)).value();
  }
  std::shared_ptr<const text::Grammar> compile(const GrammarSource& source) const {
    auto grammar = compiler->compile(source);
    CHECK_MSG(grammar.is_ok(), grammar.status().message().c_str());
    return std::move(grammar).value();
  }
  std::unique_ptr<text::Tokenizer> tokenizer;
  std::unique_ptr<text::GrammarCompiler> compiler;
};

void build_trie(benchmark::State& state, const World& world) {
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(text::GrammarCompiler::create(*world.tokenizer));
  }
}

void compile(benchmark::State& state, const World& world, const Case& example) {
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(world.compile(example.source));
}

void start(benchmark::State& state, const World& world, const Case& example) {
  const auto grammar = world.compile(example.source);
  for ([[maybe_unused]] auto _ : state) benchmark::DoNotOptimize(grammar->start());
}

// An iteration is a token: its mask, then the step behind it. Starting is left out.
void mask(benchmark::State& state, const World& world, const Case& example) {
  const auto grammar = world.compile(example.source);
  const auto tokens = world.tokenizer->encode(example.answer, {.add_special = false}).value();
  std::unique_ptr<text::Constraint> constraint;
  size_t at = tokens.size();
  for ([[maybe_unused]] auto _ : state) {
    if (at == tokens.size()) {
      state.PauseTiming();
      constraint = grammar->start();
      at = 0;
      state.ResumeTiming();
    }
    const auto allowed = constraint->allowed();
    CHECK_MSG(allowed.is_ok(), allowed.status().message().c_str());
    benchmark::DoNotOptimize(allowed->data());
    CHECK(constraint->accept(tokens[at++]).is_ok());
  }
}

// A choice at temperature 0.8 where a share of the vocabulary is allowed.
void choose(benchmark::State& state, const World& world, size_t one_in) {
  const auto size = static_cast<size_t>(world.tokenizer->vocabulary_size());
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(size);
  for (float& logit : logits) logit = normal(random);
  std::vector<uint32_t> words((size + 31) / 32);
  for (size_t id = 0; id < size; id += one_in) words[id / 32] |= 1U << (id % 32);
  runtime::SamplingParams params;
  params.temperature = 0.8F;
  params.seed = 1;
  auto sampler = std::move(runtime::Sampler::create(params, size)).value();
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(sampler.sample({logits, nullptr}, runtime::TokenMask(words)));
  }
}

void add(const World& world) {
  static const std::vector<Case> examples = cases();
  benchmark::RegisterBenchmark("build_trie", build_trie, std::cref(world))
      ->Unit(benchmark::kMillisecond);
  for (const Case& example : examples) {
    const auto name = [&](const char* what) { return fmt::format("{}/{}", what, example.name); };
    benchmark::RegisterBenchmark(name("compile").c_str(), compile, std::cref(world),
                                 std::cref(example))
        ->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(name("start").c_str(), start, std::cref(world), std::cref(example))
        ->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark(name("mask").c_str(), mask, std::cref(world), std::cref(example))
        ->Unit(benchmark::kMicrosecond);
  }
  for (const size_t one_in : std::array<size_t, 3>{1, 2, 5000}) {
    benchmark::RegisterBenchmark(fmt::format("choose/one_in_{}", one_in).c_str(), choose,
                                 std::cref(world), one_in)
        ->Unit(benchmark::kMicrosecond);
  }
}

}  // namespace
}  // namespace shoal

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (argc != 2) {
    fmt::print(stderr, "usage: grammar_bench MODEL [--benchmark_...]\n");
    return 0;  // `./dev bench` runs every benchmark and has no model for it
  }
  const shoal::World world(argv[1]);
  shoal::add(world);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

// Speed of the kernels on one thread, per type: GB/s of weights in decode, Gflop/s in prefill.
//
// The first lines measure the limits: read bandwidth and the float32 peak. `--benchmark_filter`
// chooses; the matrix is [4096, 2048], larger than the caches in every type but read once per pass.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "tensor/activations.h"
#include "tensor/cpu/kernels.h"
#include "tensor/machine/machine_probe.h"
#include "tensor/ops/attention.h"
#include "tensor/quant/quantize.h"

namespace shoal::tensor {
namespace {

constexpr int64_t kCols = 2048;
// Enough that decode reads memory and not the cache; prefill uses fewer.
constexpr int64_t kDecodeRows = 65536;
constexpr int64_t kPrefillRows = 2048;

std::vector<float> random_floats(size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0F, 0.05F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// [kDecodeRows, kCols] of a type: 64 distinct rows, repeated.
std::vector<std::byte> make_weights(DType type, int64_t rows) {
  const std::vector<std::byte> some = quantize_matrix(type, random_floats(64 * kCols), kCols);
  std::vector<std::byte> all;
  for (int64_t row = 0; row < rows; row += 64) all.insert(all.end(), some.begin(), some.end());
  return all;
}

struct Setup {
  std::unique_ptr<WorkerPool> pool;
  std::vector<std::byte> bytes;
  PackedMatrix matrix;
  Activations activations;
  std::vector<float> x;
  std::vector<float> y;
  int64_t tokens;

  Setup(DType type, KernelPath path, int64_t rows, int64_t token_count)
      : pool(std::move(WorkerPool::create({.workers = 1, .path = path})).value()),
        bytes(make_weights(type, rows)),
        x(random_floats(static_cast<size_t>(token_count * kCols))),
        y(static_cast<size_t>(token_count * rows)),
        tokens(token_count) {
    const MatrixView view{type, rows, kCols, bytes};
    matrix = PackedMatrix::pack(view, Shard::whole(view), path).value();
    activations = Activations::allocate({tokens, kCols}).value();
    CHECK(pool->reserve_scratch(matmul_scratch_bytes(path, kCols)).is_ok());
  }

  void step() {
    pool->run([&](Worker& me) {
      pack_activations(me, InputSource::rows({x.data(), tokens, kCols, kCols}),
                       matrix.input_format(), activations);
      me.barrier();
      matmul(me, matrix, activations, {y.data(), tokens, matrix.rows(), matrix.rows()});
    });
  }
};

bool has_vectors(KernelPath path) { return path > KernelPath::kPortable; }

void decode(benchmark::State& state, DType type, KernelPath path) {
  const int64_t rows = has_vectors(path) ? kDecodeRows : kPrefillRows;
  Setup setup(type, path, rows, state.range(0));
  for ([[maybe_unused]] auto _ : state) setup.step();
  const double bytes = static_cast<double>(setup.matrix.bytes());
  state.counters["GB/s"] =
      benchmark::Counter(bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

void prefill(benchmark::State& state, DType type, KernelPath path) {
  Setup setup(type, path, has_vectors(path) ? kPrefillRows : 128, state.range(0));
  for ([[maybe_unused]] auto _ : state) setup.step();
  const double operations = 2.0 * static_cast<double>(setup.matrix.rows() * kCols * setup.tokens);
  state.counters["Gflop/s"] =
      benchmark::Counter(operations * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// GB/s of the file's bytes, packed at load.
void pack(benchmark::State& state, DType type) {
  const std::vector<std::byte> bytes = make_weights(type, kPrefillRows);
  const MatrixView view{type, kPrefillRows, kCols, bytes};
  for ([[maybe_unused]] auto _ : state) {
    benchmark::DoNotOptimize(
        PackedMatrix::pack(view, Shard::whole(view), best_kernel_path()).value().bytes());
  }
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(bytes.size()) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

// An empty step with one barrier.
void step(benchmark::State& state) {
  auto pool = std::move(WorkerPool::create({.workers = static_cast<int>(state.range(0))})).value();
  for ([[maybe_unused]] auto _ : state) {
    pool->run([](Worker& me) { me.barrier(); });
  }
}

// One position's random keys and values, in every slot.
void fill_page(const WorkerPool& pool, const KvLayout& layout, std::byte* page) {
  const auto width = static_cast<size_t>(layout.head_dim);
  const std::vector<float> values = random_floats(2 * width);
  for (int64_t head = 0; head < layout.kv_heads; ++head) {
    for (int64_t slot = 0; slot < layout.page_tokens; ++slot) {
      write_kv(kernels_for(pool.path()), layout, {values.data(), values.data() + width, head, slot},
               page);
    }
  }
}

// One layer after the other of a model with so many, whose pages lie as in a cache.
void attend(benchmark::State& state, DType kv_type, int64_t context, int64_t tokens) {
  constexpr int64_t kLayers = 22;
  const KvLayout layout{.type = kv_type, .kv_heads = 4, .head_dim = 64};
  const AttentionParams params{.query_heads = 32, .group_size = 8, .scale = 0.125F};
  auto pool = std::move(WorkerPool::create({})).value();
  CHECK(pool->reserve_scratch(attention_scratch_bytes(pool->path(), layout, context)).is_ok());
  const int64_t pages_each = layout.pages_for(context);
  const size_t page_bytes = layout.page_bytes();
  const AlignedBuffer buffer =
      std::move(AlignedBuffer::allocate(static_cast<size_t>(kLayers * pages_each) * page_bytes))
          .value();
  std::vector<std::vector<std::byte*>> pages(kLayers);
  for (int64_t page = 0; page < kLayers * pages_each; ++page) {
    std::byte* bytes = buffer.data() + static_cast<size_t>(page) * page_bytes;
    fill_page(*pool, layout, bytes);
    pages[page % kLayers].push_back(bytes);
  }
  const std::vector<float> q = random_floats(static_cast<size_t>(tokens * 2048));
  std::vector<float> out(q.size());
  size_t layer = 0;
  for ([[maybe_unused]] auto _ : state) {
    const std::vector<KvSequence> sequences = {
        {.pages = pages[layer++ % kLayers], .position = context - tokens, .tokens = tokens}};
    pool->run([&](Worker& me) {
      attention(me, layout, params, sequences,
                {{q.data(), tokens, 2048, 2048}, {out.data(), tokens, 2048, 2048}});
    });
  }
  const double operations = 4.0 * static_cast<double>(tokens * 2048) *
                            (static_cast<double>(context) - static_cast<double>(tokens) / 2);
  state.counters["Gflop/s"] =
      benchmark::Counter(operations * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// A token of each of many sequences, whose keys and values no cache holds.
void attend_many(benchmark::State& state, DType kv_type, int64_t context) {
  constexpr int64_t kSequences = 32;
  const KvLayout layout{.type = kv_type, .kv_heads = 4, .head_dim = 64};
  const AttentionParams params{.query_heads = 12, .group_size = 3, .scale = 0.125F};
  auto pool = std::move(WorkerPool::create({})).value();
  CHECK(pool->reserve_scratch(attention_scratch_bytes(pool->path(), layout, context)).is_ok());
  const int64_t pages_each = layout.pages_for(context);
  const auto page_bytes = static_cast<size_t>(layout.page_bytes());
  const AlignedBuffer buffer =
      std::move(AlignedBuffer::allocate(static_cast<size_t>(kSequences * pages_each) * page_bytes))
          .value();
  std::vector<std::vector<std::byte*>> pages(kSequences);
  std::vector<KvSequence> sequences;
  for (int64_t i = 0; i < kSequences; ++i) {
    for (int64_t page = 0; page < pages_each; ++page) {
      pages[i].push_back(buffer.data() + static_cast<size_t>(i * pages_each + page) * page_bytes);
      fill_page(*pool, layout, pages[i].back());
    }
    sequences.push_back({.pages = pages[i], .position = context - 1, .tokens = 1, .row = i});
  }
  const int64_t width = params.query_heads * layout.head_dim;
  const std::vector<float> q = random_floats(static_cast<size_t>(kSequences * width));
  std::vector<float> out(q.size());
  for ([[maybe_unused]] auto _ : state) {
    pool->run([&](Worker& me) {
      attention(me, layout, params, sequences,
                {{q.data(), kSequences, width, width}, {out.data(), kSequences, width, width}});
    });
  }
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(buffer.size()) * 1e-9,
                                              benchmark::Counter::kIsIterationInvariantRate);
}

void print_limits(int workers) {
  auto pool = std::move(WorkerPool::create({.workers = workers})).value();
  const double bandwidth =
      measure_read_bandwidth(*pool, size_t{256} << 20).value().bytes_per_second;
  fmt::print("{} worker(s): read {:.1f} GB/s, float32 peak {:.0f} Gflop/s\n", workers,
             bandwidth * 1e-9, measure_float_peak(*pool) * 1e-9);
}

using Body = std::function<void(benchmark::State&)>;

benchmark::internal::Benchmark& add(const std::string& name, Body body) {
  return *benchmark::RegisterBenchmark(name.c_str(), std::move(body))
              ->Unit(benchmark::kMicrosecond);
}

void add_matmuls(DType type, KernelPath path) {
  const std::string name = fmt::format("{}/{}", kernel_path_name(path), dtype_name(type));
  add("decode/" + name, [=](benchmark::State& state) { decode(state, type, path); })
      .Arg(1)
      ->Arg(4)
      ->Arg(16);
  add("prefill/" + name, [=](benchmark::State& state) { prefill(state, type, path); })
      .Arg(64)
      ->Arg(512);
}

void add_benchmarks() {
  for (const KernelPath path : runnable_kernel_paths()) {
    for (size_t i = 0; i < kSupportedTypes; ++i) add_matmuls(static_cast<DType>(i), path);
  }
  for (size_t i = 0; i < kSupportedTypes; ++i) {
    const auto type = static_cast<DType>(i);
    add(fmt::format("pack/{}", dtype_name(type)),
        [=](benchmark::State& state) { pack(state, type); });
  }
  add("step", step).Arg(1)->Arg(2)->UseRealTime();
  for (const DType kv_type : {DType::kF16, DType::kI8}) {
    const std::string name = kv_type == DType::kF16 ? "f16" : "q8";
    for (const int64_t context : {128, 4096}) {
      add(fmt::format("attention/decode/{}/{}", name, context),
          [=](benchmark::State& state) { attend(state, kv_type, context, 1); });
    }
    for (const int64_t context : {150, 900}) {
      add(fmt::format("attention/decode32/{}/{}", name, context),
          [=](benchmark::State& state) { attend_many(state, kv_type, context); });
    }
    for (const int64_t context : {512, 4096}) {
      add(fmt::format("attention/prefill/{}/{}", name, context),
          [=](benchmark::State& state) { attend(state, kv_type, context, 512); });
    }
  }
}

}  // namespace
}  // namespace shoal::tensor

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  shoal::tensor::print_limits(1);
  shoal::tensor::add_benchmarks();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

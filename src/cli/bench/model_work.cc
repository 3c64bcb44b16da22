#include "cli/bench/model_work.h"

#include <algorithm>
#include <map>
#include <memory>

#include "tensor/machine/machine_probe.h"
#include "tensor/threads.h"

namespace shoal::cli {
namespace {

// Of each thread: far more than its share of the caches.
constexpr size_t kReadBytes = size_t{192} << 20U;

}  // namespace

double prefill_operations(const model::ModelConfig& config, uint32_t depth, uint32_t tokens) {
  const double hidden = config.hidden;
  const double count = tokens;
  // Token i sees depth + i + 1 positions.
  const double seen = count * (depth + (count + 1) / 2);
  double operations = 2 * hidden * config.vocab;
  for (const model::LayerSpec& layer : config.layers) {
    const double q = double{1} * layer.heads * layer.head_dim;
    const double kv = double{1} * layer.kv_heads * layer.head_dim;
    operations += 2 * count * hidden * (2 * q + 2 * kv + 3.0 * layer.ffn);
    operations += 4 * seen * q;
  }
  return operations;
}

tensor::DType main_type(const model::ModelTensors& tensors) {
  std::map<tensor::DType, uint64_t> bytes;
  for (const model::LayerTensors& layer : tensors.layers) {
    for (const model::TensorInfo* info :
         {layer.wq, layer.wk, layer.wv, layer.wo, layer.w_gate, layer.w_up, layer.w_down}) {
      bytes[model::matrix_view(*info).type] += info->data.size();
    }
  }
  const auto most = std::max_element(
      bytes.begin(), bytes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == bytes.end() ? tensor::DType::kF32 : most->first;
}

Result<MachineLimits> measure_limits(uint32_t threads, tensor::DType type,
                                     tensor::KernelPath path) {
  ASSIGN_OR_RETURN(
      const std::unique_ptr<tensor::WorkerPool> pool,
      tensor::WorkerPool::create({.workers = static_cast<int>(threads), .path = path}));
  MachineLimits limits;
  limits.threads = threads;
  ASSIGN_OR_RETURN(const tensor::ReadBandwidth bandwidth,
                   tensor::measure_read_bandwidth(*pool, kReadBytes));
  limits.read_bytes_per_second = bandwidth.bytes_per_second;
  limits.float_operations_per_second = tensor::measure_float_peak(*pool);
  ASSIGN_OR_RETURN(limits.matmul_operations_per_second, tensor::measure_matmul_peak(*pool, type));
  return limits;
}

Json to_json(const MachineLimits& limits) {
  return {{"threads", limits.threads},
          {"read_bytes_per_second", limits.read_bytes_per_second},
          {"float_operations_per_second", limits.float_operations_per_second},
          {"matmul_operations_per_second", limits.matmul_operations_per_second}};
}

}  // namespace shoal::cli

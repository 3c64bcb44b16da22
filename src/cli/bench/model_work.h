// ModelWork: what a model's tokens ask of memory and arithmetic, and what this machine has of both.
//
// Thread rule: values; measure_limits keeps the machine busy for about a second.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "cli/support/json_output.h"
#include "model/model.h"
#include "model/model_config.h"
#include "tensor/dtype.h"

namespace shoal::cli {

// Operations (a multiplication and an addition are two) of the matrix products and the attention
// for `tokens` tokens behind `depth` others; the output head for the last one alone.
double prefill_operations(const model::ModelConfig& config, uint32_t depth, uint32_t tokens);

// The type that most bytes of the model's matrices have.
tensor::DType main_type(const model::ModelTensors& tensors);

// Measured with as many threads as the model runs on, all nodes of this machine together.
struct MachineLimits {
  uint32_t threads = 0;
  double read_bytes_per_second = 0;
  double float_operations_per_second = 0;   // float32 in registers
  double matmul_operations_per_second = 0;  // of the kernels, with weights in the cache
};
Result<MachineLimits> measure_limits(uint32_t threads, tensor::DType type, tensor::KernelPath path);
Json to_json(const MachineLimits& limits);

}  // namespace shoal::cli

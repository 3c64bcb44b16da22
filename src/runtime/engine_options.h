// EngineOptions: how an engine and its followers compute.
//
// `exact`, `prefill_chunk`, `sessions_max` and `tokens` must be the same on every rank; the rest
// may differ. Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

#include "base/clock.h"
#include "tensor/kernel_path.h"

namespace shoal::runtime {

struct EngineOptions {
  uint32_t threads = 1;             // compute threads of this rank, the caller's included
  uint32_t threads_on_machine = 0;  // of all ranks that share this machine; 0: only this rank's
  // Kernels that a test or a comparison wants; none: the best of this rank's processor.
  std::optional<tensor::KernelPath> kernels;
  bool exact = false;            // the naive path: float32 activations; needs KvType::kF32
  uint32_t prefill_chunk = 256;  // tokens of one step at most; bounds the scratch memory
  uint32_t sessions_max = 16;
  // Of the tokenizer: rows of the output head above are padding and never chosen. 0: all rows.
  uint32_t tokens = 0;
  // Bytes of weights packed so far, of all that this rank loads; on the calling thread.
  std::function<void(uint64_t done, uint64_t total)> on_load;
  // A dead or stopped peer is noticed by the fabric long before these; they end what hangs.
  Nanoseconds load_deadline{std::chrono::hours(1)};
  Nanoseconds step_deadline{std::chrono::minutes(10)};

  static constexpr uint32_t kPrefillChunkMax = 4096;
  static constexpr uint32_t kSessionsMax = 64;
};

}  // namespace shoal::runtime

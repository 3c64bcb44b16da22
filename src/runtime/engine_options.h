// EngineOptions: how an engine and its followers compute; the same on every rank but for threads.
//
// Thread rule: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "base/clock.h"

namespace shoal::runtime {

struct EngineOptions {
  uint32_t threads = 1;          // compute threads of this rank, the caller's included
  bool exact = false;            // the naive path: float32 activations and KV cache
  uint32_t prefill_chunk = 256;  // tokens of one step at most; bounds the scratch memory
  uint32_t sessions_max = 64;
  // Bytes of weights packed so far, of all that this rank loads; from one thread at a time.
  std::function<void(uint64_t done, uint64_t total)> on_load;
  // A dead or stopped peer is noticed by the fabric long before these; they end what hangs.
  Nanoseconds load_deadline{std::chrono::hours(1)};
  Nanoseconds step_deadline{std::chrono::minutes(10)};
};

}  // namespace shoal::runtime

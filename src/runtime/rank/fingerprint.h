// Fingerprint: what must agree for ranks to compute one model together, as a few hashes.
//
// Ranks may read the model from files of their own. Rank 0 compares the fingerprints of all, so
// that another model, another version of it, or another layout is refused and never becomes a wrong
// sum. Weights are sampled, not read: some hundred bytes of every tensor. FNV-1a: tells different
// set-ups apart, no defence against forgery.
// Thread rule: pure functions and values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/model.h"
#include "plan/plan.h"
#include "runtime/engine_options.h"

namespace shoal::runtime {

struct Fingerprint {
  uint64_t settings = 0;  // family, dimensions, rotary embedding, norms, windows
  uint64_t tensors = 0;   // names, types and shapes
  uint64_t weights = 0;   // samples of the tensors' bytes
  uint64_t layout = 0;    // plan, KV type and the options that every rank must share

  bool operator==(const Fingerprint&) const = default;
};

Fingerprint fingerprint_of(const model::Model& model, const plan::Plan& plan,
                           const EngineOptions& options);

// What differs, in words: "another model (its settings differ)"; empty for equal ones.
std::string difference(const Fingerprint& a, const Fingerprint& b);

}  // namespace shoal::runtime

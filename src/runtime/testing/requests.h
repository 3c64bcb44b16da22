// Requests of tests, in a session of their own.
//
// Thread rule: one thread at a time.
#pragma once

#include <utility>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "runtime/engine.h"
#include "runtime/token.h"

namespace shoal::runtime::testing {

// The value; CHECKs that there is one.
template <typename T>
T must(Result<T> result) {
  CHECK_MSG(result.is_ok(), result.status().message().c_str());
  return std::move(result).value();
}

GenerateRequest greedy(uint32_t tokens_max);

// One answer, in a session that is closed again.
Result<GenerateResult> try_answer(Engine& engine, const std::vector<TokenId>& prompt,
                                  GenerateRequest request);
GenerateResult answer(Engine& engine, const std::vector<TokenId>& prompt, GenerateRequest request);

}  // namespace shoal::runtime::testing

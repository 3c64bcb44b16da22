// Sums in rank order, the arithmetic of all_reduce.
//
// Thread rule: pure functions.
#pragma once

#include <span>

namespace shoal::collective {

// out[i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) ...; with an addend,
// out[i] = addend[i] + that. Every part has out.size() elements; out may be one of the parts, or
// the addend. At least one part.
struct SumInput {
  std::span<const float* const> parts;
  const float* addend = nullptr;
};
using SumFunction = void (*)(std::span<float> out, const SumInput& input);

// The plain one, vectorised by the compiler for the processor at hand.
void sum_in_rank_order(std::span<float> out, const SumInput& input);

}  // namespace shoal::collective

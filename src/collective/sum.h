// Sums in rank order, the arithmetic of all_reduce.
//
// Thread rule: pure functions.
#pragma once

#include <span>

namespace shoal::collective {

// out[i] = ((parts[0][i] + parts[1][i]) + parts[2][i]) ... Every part has out.size() elements; out
// may be one of the parts. At least one part.
using SumFunction = void (*)(std::span<float> out, std::span<const float* const> parts);

// The plain one, vectorised by the compiler for the processor at hand.
void sum_in_rank_order(std::span<float> out, std::span<const float* const> parts);

}  // namespace shoal::collective

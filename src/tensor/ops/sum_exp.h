// sum_exp: the sum under a softmax or a log-sum-exp over a vocabulary.
//
// Thread rule: a pure function of one thread.
#pragma once

#include <span>

#include "tensor/kernel_path.h"

namespace shoal::tensor {

struct SumExp {
  float shift = 0;  // the largest of x: then nothing overflows
  float scale = 1;  // 1 / temperature
  KernelPath path = KernelPath::kPortable;
};

// Sum of exp((x[i] - shift) * scale), each term good to 2^-22; -infinity adds nothing. The bits
// depend on the path.
double sum_exp(std::span<const float> x, const SumExp& how);

}  // namespace shoal::tensor

// KernelPath: which set of kernels computes, chosen once per process from what the processor has.
//
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace shoal::tensor {

enum class KernelPath : uint8_t {
  kExact,     // the naive reference: float32 activations, dequantized weights, plain sums
  kPortable,  // packed weights, plain C++: any processor
  kAvx512,    // packed weights, AVX-512 F/BW/VL/DQ and VNNI
};

std::string_view kernel_path_name(KernelPath path);  // "exact", "portable", "avx512"
std::optional<KernelPath> kernel_path_from_name(std::string_view name);

// This processor and operating system can run it, and it was built for this architecture.
bool kernel_path_runs_here(KernelPath path);
// The fastest that runs here; never kExact.
KernelPath best_kernel_path();
// Every path that runs here, kExact first.
std::vector<KernelPath> runnable_kernel_paths();

}  // namespace shoal::tensor

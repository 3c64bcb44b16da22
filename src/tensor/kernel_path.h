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
  kExact,          // the naive reference: float32 activations, dequantized weights, plain sums
  kPortableTiles,  // kPortable with a stand-in of AMX's tiles in prefill; for tests
  kPortable,       // packed weights, plain C++: any processor
  kAvx2,           // packed weights, AVX2 with FMA and F16C
  kAvxVnni,        // the same with AVX-VNNI
  kAvx512,         // packed weights, AVX-512 F/BW/VL/DQ and VNNI
  kAmx,            // the same with AMX-INT8 in prefill
  kNeonDot,        // packed weights, 64-bit Arm's dot product instructions
  kNeonI8mm,       // the same with its matrix instructions for bytes
};

std::string_view kernel_path_name(KernelPath path);   // "exact", "avx512", ...
std::string_view kernel_path_needs(KernelPath path);  // "AVX-512 with VNNI", ...
std::optional<KernelPath> kernel_path_from_name(std::string_view name);

// This processor and operating system can run it, and it was built for this architecture.
bool kernel_path_runs_here(KernelPath path);
// The fastest that runs here; never kExact or kPortableTiles.
KernelPath best_kernel_path();
// Every path that runs here, kExact first, the fastest last.
std::vector<KernelPath> runnable_kernel_paths();
// Every path that there is.
std::vector<KernelPath> all_kernel_paths();

}  // namespace shoal::tensor

// CpuFeatures: the instruction sets that processor and operating system offer to this process.
//
// One source per architecture, chosen in CMake. Thread rule: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace shoal::tensor {

struct CpuFeatures {
  std::string processor;  // its own name for itself, or the architecture's
  // x86-64
  bool avx2 = false;      // with FMA and F16C
  bool avx_vnni = false;  // in 256-bit registers, without AVX-512
  bool avx512 = false;    // F, BW, VL and DQ
  bool avx512_vnni = false;
  bool avx512_vbmi = false;
  bool avx512_bf16 = false;
  bool avx512_fp16 = false;
  bool amx_tile = false;
  bool amx_int8 = false;
  bool amx_bf16 = false;
  // 64-bit Arm
  bool neon_dot = false;
  bool neon_i8mm = false;
};

CpuFeatures detect_cpu_features();

// Asks the system for AMX's tile registers, which Linux gives to processes that ask, all threads
// included; false where it does not.
bool allow_amx_tiles();

// The names of those that are there: "avx2", "avx512", "amx_int8", ...
std::vector<std::string_view> cpu_feature_names(const CpuFeatures& features);

}  // namespace shoal::tensor

#include "tensor/kernel_path.h"

#include <array>

#include "base/check.h"
#include "tensor/cpu/kernels.h"
#include "tensor/machine/features.h"

namespace shoal::tensor {
namespace {

struct PathEntry {
  KernelPath path;
  std::string_view name;
  std::string_view needs;
  const Kernels& table;
  bool (*processor_has_it)(const CpuFeatures& features);
};

// From the slowest to the fastest, in the order of the enumeration.
constexpr std::array kPaths = {
    PathEntry{KernelPath::kExact, "exact", "nothing", kExactKernels,
              [](const CpuFeatures&) { return true; }},
    PathEntry{KernelPath::kPortableTiles, "portable_tiles", "nothing", kPortableTilesKernels,
              [](const CpuFeatures&) { return true; }},
    PathEntry{KernelPath::kPortable, "portable", "nothing", kPortableKernels,
              [](const CpuFeatures&) { return true; }},
    PathEntry{KernelPath::kAvx2, "avx2", "AVX2, FMA and F16C", kAvx2Kernels,
              [](const CpuFeatures& features) { return features.avx2; }},
    PathEntry{KernelPath::kAvxVnni, "avx_vnni", "AVX-VNNI", kAvxVnniKernels,
              [](const CpuFeatures& features) { return features.avx_vnni; }},
    PathEntry{KernelPath::kAvx512, "avx512", "AVX-512 with VNNI", kAvx512Kernels,
              [](const CpuFeatures& features) { return features.avx512_vnni; }},
    PathEntry{KernelPath::kAmx, "amx", "AVX-512 with VNNI, and AMX-INT8", kAmxKernels,
              [](const CpuFeatures& features) {
                return features.avx512_vnni && features.amx_int8 && allow_amx_tiles();
              }},
    PathEntry{KernelPath::kNeonDot, "neon_dot", "64-bit Arm's dot products", kNeonDotKernels,
              [](const CpuFeatures& features) { return features.neon_dot; }},
    PathEntry{KernelPath::kNeonI8mm, "neon_i8mm", "64-bit Arm's I8MM", kNeonI8mmKernels,
              [](const CpuFeatures& features) { return features.neon_dot && features.neon_i8mm; }},
};

const PathEntry& entry_of(KernelPath path) {
  const auto index = static_cast<size_t>(path);
  CHECK(index < kPaths.size() && kPaths[index].path == path);
  return kPaths[index];
}

}  // namespace

std::string_view kernel_path_name(KernelPath path) { return entry_of(path).name; }

std::string_view kernel_path_needs(KernelPath path) { return entry_of(path).needs; }

std::optional<KernelPath> kernel_path_from_name(std::string_view name) {
  for (const PathEntry& entry : kPaths) {
    if (entry.name == name) return entry.path;
  }
  return std::nullopt;
}

bool kernel_path_runs_here(KernelPath path) {
  static const CpuFeatures features = detect_cpu_features();
  const PathEntry& entry = entry_of(path);
  return entry.table.dot != nullptr && entry.processor_has_it(features);
}

KernelPath best_kernel_path() { return runnable_kernel_paths().back(); }

std::vector<KernelPath> runnable_kernel_paths() {
  std::vector<KernelPath> paths;
  for (const KernelPath path : all_kernel_paths()) {
    if (kernel_path_runs_here(path)) paths.push_back(path);
  }
  return paths;
}

std::vector<KernelPath> all_kernel_paths() {
  std::vector<KernelPath> paths;
  paths.reserve(std::size(kPaths));
  for (const PathEntry& entry : kPaths) paths.push_back(entry.path);
  return paths;
}

const Kernels& kernels_for(KernelPath path) {
  CHECK(kernel_path_runs_here(path));
  return entry_of(path).table;
}

}  // namespace shoal::tensor

#include "tensor/kernel_path.h"

#include <array>

#include "base/check.h"
#include "tensor/cpu/kernels.h"
#include "tensor/machine/features.h"

namespace shoal::tensor {
namespace {

struct NamedPath {
  KernelPath path;
  std::string_view name;
};
// From the slowest to the fastest.
constexpr std::array kPaths = {NamedPath{KernelPath::kExact, "exact"},
                               NamedPath{KernelPath::kPortable, "portable"},
                               NamedPath{KernelPath::kAvx512, "avx512"}};

const Kernels& table_of(KernelPath path) {
  switch (path) {
    case KernelPath::kExact:
      return kExactKernels;
    case KernelPath::kPortable:
      return kPortableKernels;
    case KernelPath::kAvx512:
      break;
  }
  return kAvx512Kernels;
}

bool processor_has(KernelPath path) {
  if (path != KernelPath::kAvx512) return true;
  static const CpuFeatures features = detect_cpu_features();
  return features.avx512 && features.avx512_vnni;
}

}  // namespace

std::string_view kernel_path_name(KernelPath path) {
  for (const NamedPath& named : kPaths) {
    if (named.path == path) return named.name;
  }
  CHECK_MSG(false, "no such kernel path");
  return {};
}

std::optional<KernelPath> kernel_path_from_name(std::string_view name) {
  for (const NamedPath& named : kPaths) {
    if (named.name == name) return named.path;
  }
  return std::nullopt;
}

bool kernel_path_runs_here(KernelPath path) {
  return table_of(path).dot != nullptr && processor_has(path);
}

KernelPath best_kernel_path() { return runnable_kernel_paths().back(); }

std::vector<KernelPath> runnable_kernel_paths() {
  std::vector<KernelPath> paths;
  for (const NamedPath& named : kPaths) {
    if (kernel_path_runs_here(named.path)) paths.push_back(named.path);
  }
  return paths;
}

const Kernels& kernels_for(KernelPath path) {
  CHECK(kernel_path_runs_here(path));
  return table_of(path);
}

}  // namespace shoal::tensor

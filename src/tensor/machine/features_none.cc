#include "tensor/machine/features.h"

namespace shoal::tensor {

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
  features.processor = "unknown";
  return features;
}

bool allow_amx_tiles() { return false; }

}  // namespace shoal::tensor

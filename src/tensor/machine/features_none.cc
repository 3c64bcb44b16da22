#include "tensor/machine/features.h"

namespace shoal::tensor {

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
  features.processor = "unknown";
  return features;
}

}  // namespace shoal::tensor

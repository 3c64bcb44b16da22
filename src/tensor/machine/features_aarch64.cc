#include <asm/hwcap.h>
#include <sys/auxv.h>

#include "tensor/machine/features.h"

namespace shoal::tensor {

CpuFeatures detect_cpu_features() {
  CpuFeatures features;
  features.processor = "64-bit Arm";
  features.neon_dot = (::getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
  features.neon_i8mm = (::getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
  return features;
}

bool allow_amx_tiles() { return false; }

}  // namespace shoal::tensor

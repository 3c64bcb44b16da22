#include "tensor/machine/features.h"

namespace shoal::tensor {

std::vector<std::string_view> cpu_feature_names(const CpuFeatures& features) {
  std::vector<std::string_view> names;
  const auto add = [&](bool is_there, std::string_view name) {
    if (is_there) names.push_back(name);
  };
  add(features.avx2, "avx2");
  add(features.avx_vnni, "avx_vnni");
  add(features.avx512, "avx512");
  add(features.avx512_vnni, "avx512_vnni");
  add(features.avx512_vbmi, "avx512_vbmi");
  add(features.avx512_bf16, "avx512_bf16");
  add(features.avx512_fp16, "avx512_fp16");
  add(features.amx_tile, "amx_tile");
  add(features.amx_int8, "amx_int8");
  add(features.amx_bf16, "amx_bf16");
  add(features.neon_dot, "neon_dot");
  add(features.neon_i8mm, "neon_i8mm");
  return names;
}

}  // namespace shoal::tensor

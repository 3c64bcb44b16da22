#include "tensor/dtype.h"

#include <array>
#include <cstddef>

#include "base/check.h"

namespace shoal::tensor {
namespace {

// In the order of the enumeration: type, name, GGUF number, block elements, block bytes, supported,
// quantized.
constexpr std::array kInfos = {
    DTypeInfo{DType::kF32, "F32", 0, 1, 4, true, false},
    DTypeInfo{DType::kF16, "F16", 1, 1, 2, true, false},
    DTypeInfo{DType::kBF16, "BF16", 30, 1, 2, true, false},
    DTypeInfo{DType::kQ4_0, "Q4_0", 2, 32, 18, true, true},
    DTypeInfo{DType::kQ4_1, "Q4_1", 3, 32, 20, true, true},
    DTypeInfo{DType::kQ5_0, "Q5_0", 6, 32, 22, true, true},
    DTypeInfo{DType::kQ5_1, "Q5_1", 7, 32, 24, true, true},
    DTypeInfo{DType::kQ8_0, "Q8_0", 8, 32, 34, true, true},
    DTypeInfo{DType::kQ4_K, "Q4_K", 12, 256, 144, true, true},
    DTypeInfo{DType::kQ5_K, "Q5_K", 13, 256, 176, true, true},
    DTypeInfo{DType::kQ6_K, "Q6_K", 14, 256, 210, true, true},
    DTypeInfo{DType::kQ2_K, "Q2_K", 10, 256, 84, true, true},
    DTypeInfo{DType::kQ3_K, "Q3_K", 11, 256, 110, true, true},
    DTypeInfo{DType::kIQ4_NL, "IQ4_NL", 20, 32, 18, true, true},
    DTypeInfo{DType::kIQ4_XS, "IQ4_XS", 23, 256, 136, true, true},
    DTypeInfo{DType::kMXFP4, "MXFP4", 39, 32, 17, true, true},
    DTypeInfo{DType::kQ8_1, "Q8_1", 9, 32, 36, false, true},
    DTypeInfo{DType::kQ8_K, "Q8_K", 15, 256, 292, false, true},
    DTypeInfo{DType::kIQ1_S, "IQ1_S", 19, 256, 50, false, true},
    DTypeInfo{DType::kIQ1_M, "IQ1_M", 29, 256, 56, false, true},
    DTypeInfo{DType::kIQ2_XXS, "IQ2_XXS", 16, 256, 66, false, true},
    DTypeInfo{DType::kIQ2_XS, "IQ2_XS", 17, 256, 74, false, true},
    DTypeInfo{DType::kIQ2_S, "IQ2_S", 22, 256, 82, false, true},
    DTypeInfo{DType::kIQ3_XXS, "IQ3_XXS", 18, 256, 98, false, true},
    DTypeInfo{DType::kIQ3_S, "IQ3_S", 21, 256, 110, false, true},
    DTypeInfo{DType::kTQ1_0, "TQ1_0", 34, 256, 54, false, true},
    DTypeInfo{DType::kTQ2_0, "TQ2_0", 35, 256, 66, false, true},
    DTypeInfo{DType::kNVFP4, "NVFP4", 40, 64, 36, false, true},
    DTypeInfo{DType::kQ1_0, "Q1_0", 41, 128, 18, false, true},
    DTypeInfo{DType::kI8, "I8", 24, 1, 1, false, false},
    DTypeInfo{DType::kI16, "I16", 25, 1, 2, false, false},
    DTypeInfo{DType::kI32, "I32", 26, 1, 4, false, false},
    DTypeInfo{DType::kI64, "I64", 27, 1, 8, false, false},
    DTypeInfo{DType::kF64, "F64", 28, 1, 8, false, false},
};

constexpr bool infos_match_the_enumeration() {
  for (size_t i = 0; i < kInfos.size(); ++i) {
    if (static_cast<size_t>(kInfos[i].type) != i) return false;
    if (kInfos[i].is_supported != (i < kSupportedTypes)) return false;
  }
  return true;
}
static_assert(infos_match_the_enumeration());

}  // namespace

const DTypeInfo& dtype_info(DType type) {
  const auto index = static_cast<size_t>(type);
  CHECK(index < kInfos.size());
  return kInfos[index];
}

std::string supported_dtype_names() {
  std::string names;
  for (size_t i = 0; i < kSupportedTypes; ++i) {
    if (i > 0) names += i + 1 < kSupportedTypes ? ", " : " or ";
    names += kInfos[i].name;
  }
  return names;
}

std::optional<DType> dtype_from_gguf(uint32_t gguf_id) {
  for (const DTypeInfo& info : kInfos) {
    if (info.gguf_id == gguf_id) return info.type;
  }
  return std::nullopt;
}

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& info : kInfos) {
    if (info.name == name) return info.type;
  }
  return std::nullopt;
}

std::optional<uint64_t> row_bytes(DType type, uint64_t cols) {
  const DTypeInfo& info = dtype_info(type);
  if (cols % info.block_elements != 0) return std::nullopt;
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(cols / info.block_elements, uint64_t{info.block_bytes}, &bytes)) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace shoal::tensor

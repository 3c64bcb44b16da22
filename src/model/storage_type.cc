#include "model/storage_type.h"

#include <algorithm>
#include <array>

namespace shoal::model {
namespace {

using tensor::DType;

// What safetensors files hold beside the types that GGUF has too.
constexpr std::array kOtherTypes = std::to_array<StorageType>({
    {"F8_E4M3", 1, 1, 1, std::nullopt},
    {"F8_E5M2", 1, 1, 1, std::nullopt},
    {"F8_E8M0", 1, 1, 1, std::nullopt},
    {"C64", 1, 8, 4, std::nullopt},
    {"BOOL", 1, 1, 1, std::nullopt},
    {"U8", 1, 1, 1, std::nullopt},
    {"U16", 1, 2, 2, std::nullopt},
    {"U32", 1, 4, 4, std::nullopt},
    {"U64", 1, 8, 8, std::nullopt},
});

constexpr std::array kPlainTypes = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64,
                                    DType::kI8,  DType::kI16, DType::kI32,  DType::kI64};

}  // namespace

StorageType storage_type(DType dtype) {
  const tensor::DTypeInfo& info = tensor::dtype_info(dtype);
  // Quantized blocks start with 16-bit scales where their size is even; no kernel that is given
  // a block with other needs loads it as anything but bytes.
  const uint32_t alignment =
      info.block_elements == 1 ? info.block_bytes : (info.block_bytes % 2 == 0 ? 2 : 1);
  return {info.name, info.block_elements, info.block_bytes, alignment, dtype};
}

std::optional<StorageType> safetensors_storage_type(std::string_view name) {
  const auto plain = std::ranges::find(kPlainTypes, name, &tensor::dtype_name);
  if (plain != kPlainTypes.end()) return storage_type(*plain);
  const auto other = std::ranges::find(kOtherTypes, name, &StorageType::name);
  if (other != kOtherTypes.end()) return *other;
  return std::nullopt;
}

}  // namespace shoal::model

// StorageType: every element type that a model file may name, with the size of its blocks.
//
// A file may hold types that no kernel computes with (integers, newer quantizations): it can still
// be opened and listed; only building a model from such a tensor is refused. Sizes are those of
// docs/gguf.md and docs/safetensors.md. Thread rule: constant tables.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/status.h"
#include "tensor/dtype.h"

namespace shoal::model {

struct StorageType {
  std::string_view name;               // as users know it: "Q4_K", "BF16", "U8"
  uint32_t block_elements = 1;         // consecutive elements of a row in one block
  uint32_t block_bytes = 0;            // bytes of one block
  uint32_t alignment = 1;              // what a typed load of one block needs
  std::optional<tensor::DType> dtype;  // its name among the kernels, where they know it
};

StorageType storage_type(tensor::DType dtype);
// The type with this name in a safetensors header ("F32", "BF16", "I64", ...).
std::optional<StorageType> safetensors_storage_type(std::string_view name);

}  // namespace shoal::model

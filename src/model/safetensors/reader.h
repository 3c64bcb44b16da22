// The safetensors reader: one file, or the shards of a folder with or without an index.
//
// Header rules, limits and choices: docs/safetensors.md. Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/model_file.h"

namespace shoal::model {

inline constexpr uint64_t kSafetensorsHeaderBytesMax = 100'000'000;
inline constexpr size_t kSafetensorsShardsMax = 4096;

// The tensors of one file, borrowed from its bytes; TensorInfo::file is 0. `name` is the file's
// name for messages.
Result<std::vector<TensorInfo>> parse_safetensors(std::span<const std::byte> bytes,
                                                  std::string_view name);

// One file with what lies beside it, a shard (which stands for its folder), or an index.
Result<ModelFileParts> read_safetensors(const std::string& path);
// A folder: its model.safetensors.index.json, else model.safetensors, else all *.safetensors.
Result<ModelFileParts> read_safetensors_folder(const std::string& folder);

// Whether the folder holds any *.safetensors file or index.
bool has_safetensors(const std::string& folder);

}  // namespace shoal::model

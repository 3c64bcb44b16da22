// The GGUF reader: bytes or a path to metadata and tensors, versions 2 and 3, single and split.
//
// Every count and length is compared with the bytes that are left before anything is allocated, and
// all arithmetic on sizes is checked. Format, limits and choices: docs/gguf.md.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/gguf/metadata.h"
#include "model/model_file.h"

namespace shoal::model {

inline constexpr uint64_t kGgufKeysMax = 1 << 16;
inline constexpr uint64_t kGgufTensorsMax = 1 << 20;
inline constexpr uint64_t kGgufKeyBytesMax = (1 << 16) - 1;
inline constexpr uint32_t kGgufDimensionsMax = 4;
inline constexpr int kGgufArrayDepthMax = 4;
inline constexpr uint32_t kGgufAlignmentDefault = 32;
inline constexpr uint32_t kGgufAlignmentMin = 8;
inline constexpr uint32_t kGgufAlignmentMax = 1 << 20;
inline constexpr int64_t kGgufShardsMax = 4096;

// One file's contents, borrowed from its bytes.
struct GgufContents {
  uint32_t version = 0;
  uint64_t alignment = kGgufAlignmentDefault;
  GgufMetadata metadata;
  std::vector<TensorInfo> tensors;  // TensorInfo::file is 0
};

// Whether the bytes start as a GGUF file does.
bool has_gguf_magic(std::span<const std::byte> bytes);

// `name` is the file's name for messages.
Result<GgufContents> parse_gguf(std::span<const std::byte> bytes, std::string_view name);

// Maps and parses the file and, where it is one of a split model, all of its shards.
Result<ModelFileParts> read_gguf(const std::string& path);

// The place of a file in a split model, by its name alone: "x-00002-of-00003.gguf".
struct ShardName {
  std::string stem;  // with the folder: "models/x"
  int64_t number;    // 1 ..
  int64_t count;
};
std::optional<ShardName> parse_shard_name(const std::string& path);
std::string shard_path(const ShardName& shard, int64_t number);

}  // namespace shoal::model

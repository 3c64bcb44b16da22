// Split GGUF models: finding and joining the shards of one model.
#include <fmt/format.h>

#include <filesystem>

#include "base/foreign/quote.h"
#include "model/gguf/reader.h"

namespace shoal::model {
namespace {

constexpr std::string_view kCountKey = "split.count";
constexpr std::string_view kNumberKey = "split.no";
constexpr std::string_view kTensorsKey = "split.tensors.count";
constexpr size_t kDigits = 5;

struct OpenFile {
  std::unique_ptr<MappedFile> map;
  GgufContents contents;
};

Result<OpenFile> open_one(const std::string& path) {
  ASSIGN_OR_RETURN(auto map, MappedFile::open(path));
  ASSIGN_OR_RETURN(auto contents, parse_gguf(map->bytes(), path));
  return OpenFile{std::move(map), std::move(contents)};
}

// An optional integer key of the split; absent is `absent`.
Result<int64_t> split_integer(const OpenFile& file, std::string_view key, int64_t absent) {
  const MetadataValue* value = file.contents.metadata.find(key);
  if (value == nullptr) return absent;
  const auto integer = is_integer_type(value->type) ? value->integer() : std::nullopt;
  if (!integer || *integer < 0) {
    return Status::request(fmt::format("{}: the key {} is no count", file.map->path(), quote(key)));
  }
  return *integer;
}

// The digits of a number of exactly kDigits, or nothing.
std::optional<int64_t> parse_digits(std::string_view text) {
  if (text.size() != kDigits) return std::nullopt;
  int64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

// The shard's name, checked against what its metadata says.
Result<ShardName> shard_of(const OpenFile& file, int64_t count) {
  const std::string& path = file.map->path();
  if (count > kGgufShardsMax) {
    return Status::request(fmt::format("{}: the key '{}' is {}, the limit is {}", path, kCountKey,
                                       count, kGgufShardsMax));
  }
  const auto shard = parse_shard_name(path);
  if (!shard || shard->count != count) {
    return Status::request(fmt::format(
        "{}: its metadata declares {} shards, but the file is not named as one of them "
        "(...-00001-of-{:05}.gguf). If it was renamed, give all shards their names back; if the "
        "shards were joined with cat, use the separate files: Shoal joins them itself",
        path, count, count));
  }
  return *shard;
}

// All shards must be there before any is read.
Status check_none_missing(const ShardName& shard) {
  std::string missing;
  int64_t missing_count = 0;
  for (int64_t number = 1; number <= shard.count; ++number) {
    const std::string path = shard_path(shard, number);
    std::error_code error;
    if (std::filesystem::exists(path, error)) continue;
    ++missing_count;
    if (missing_count <= 3) missing += (missing.empty() ? "" : ", ") + path;
  }
  if (missing_count == 0) return Status::ok();
  if (missing_count > 3) missing += ", ...";
  return Status::request(
      fmt::format("{} of {} missing: {}: put all parts of the split model into one folder",
                  missing_count, shard.count, missing));
}

Status check_shard(const OpenFile& file, int64_t number, int64_t count) {
  ASSIGN_OR_RETURN(const int64_t said_count, split_integer(file, kCountKey, 1));
  ASSIGN_OR_RETURN(const int64_t said_number, split_integer(file, kNumberKey, 0));
  if (said_count != count || said_number != number - 1) {
    return Status::request(
        fmt::format("{}: its metadata says part {} of {}, its name says part {} of {}: the file "
                    "was renamed or belongs to another model",
                    file.map->path(), said_number + 1, said_count, number, count));
  }
  return Status::ok();
}

void append(ModelFileParts& parts, OpenFile file) {
  for (TensorInfo& info : file.contents.tensors) {
    info.file = parts.files.size();
    parts.tensors.push_back(std::move(info));
  }
  parts.files.push_back(std::move(file.map));
}

Result<ModelFileParts> join(const ShardName& shard) {
  ModelFileParts parts;
  int64_t tensors_declared = 0;
  for (int64_t number = 1; number <= shard.count; ++number) {
    ASSIGN_OR_RETURN(OpenFile file, open_one(shard_path(shard, number)));
    RETURN_IF_ERROR(check_shard(file, number, shard.count));
    if (number == 1) {
      ASSIGN_OR_RETURN(tensors_declared, split_integer(file, kTensorsKey, -1));
      parts.format_name = fmt::format("GGUF v{}, {} parts", file.contents.version, shard.count);
      parts.metadata = std::move(file.contents.metadata);
    }
    append(parts, std::move(file));
  }
  if (tensors_declared >= 0 && static_cast<uint64_t>(tensors_declared) != parts.tensors.size()) {
    return Status::request(fmt::format("{}: the key '{}' is {}, but the {} parts hold {} tensors",
                                       shard_path(shard, 1), kTensorsKey, tensors_declared,
                                       shard.count, parts.tensors.size()));
  }
  return parts;
}

}  // namespace

std::optional<ShardName> parse_shard_name(const std::string& path) {
  // "<stem>-NNNNN-of-NNNNN.gguf", all within the last component.
  constexpr std::string_view kEnd = ".gguf";
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kTailBytes = 1 + kDigits + kOf.size() + kDigits + kEnd.size();
  if (path.size() <= kTailBytes) return std::nullopt;
  const size_t tail_start = path.size() - kTailBytes;
  const std::string_view tail = std::string_view(path).substr(tail_start);
  if (tail.front() != '-' || !tail.ends_with(kEnd) || path[tail_start - 1] == '/' ||
      tail.substr(1 + kDigits, kOf.size()) != kOf) {
    return std::nullopt;
  }
  const auto number = parse_digits(tail.substr(1, kDigits));
  const auto count = parse_digits(tail.substr(1 + kDigits + kOf.size(), kDigits));
  if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
  return ShardName{path.substr(0, tail_start), *number, *count};
}

std::string shard_path(const ShardName& shard, int64_t number) {
  return fmt::format("{}-{:05}-of-{:05}.gguf", shard.stem, number, shard.count);
}

Result<ModelFileParts> read_gguf(const std::string& path) {
  ASSIGN_OR_RETURN(OpenFile file, open_one(path));
  ASSIGN_OR_RETURN(const int64_t count, split_integer(file, kCountKey, 1));
  ModelFileParts parts;
  if (count > 1) {
    ASSIGN_OR_RETURN(const ShardName shard, shard_of(file, count));
    RETURN_IF_ERROR(check_none_missing(shard));
    ASSIGN_OR_RETURN(parts, join(shard));
  } else {
    parts.format_name = fmt::format("GGUF v{}", file.contents.version);
    parts.metadata = std::move(file.contents.metadata);
    append(parts, std::move(file));
  }
  parts.format = FileFormat::kGguf;
  parts.folder = std::filesystem::path(path).parent_path().string();
  return parts;
}

}  // namespace shoal::model

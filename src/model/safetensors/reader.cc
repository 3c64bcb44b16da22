#include "model/safetensors/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/foreign/json.h"
#include "base/foreign/quote.h"

namespace shoal::model {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr std::string_view kExtension = ".safetensors";

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The tensor names that the index promises, by file; the files in order of name.
using ShardMap = std::map<std::string, std::vector<std::string>>;

Result<ShardMap> read_index(const std::string& path) {
  ASSIGN_OR_RETURN(const json index, read_json_file(path));
  const auto refuse = [&](const std::string& reason) {
    return Status::request(path + ": " + reason);
  };
  const auto weight_map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || weight_map == index.end() || !weight_map->is_object()) {
    return refuse("needs an object \"weight_map\" from tensor names to files");
  }
  ShardMap shards;
  for (const auto& [tensor, file] : weight_map->items()) {
    const auto* name = file.get_ptr<const std::string*>();
    if (name == nullptr) return refuse("tensor " + quote(tensor) + " has no file name");
    // A plain name: the index must not lead out of its folder.
    if (name->empty() || name->find('/') != std::string::npos || *name == "." || *name == "..") {
      return refuse("tensor " + quote(tensor) + " has the file " + quote(*name) +
                    ", expected a name without a folder");
    }
    shards[*name].push_back(tensor);
    if (shards.size() > kSafetensorsShardsMax) {
      return refuse(fmt::format("more than {} files", kSafetensorsShardsMax));
    }
  }
  if (shards.empty()) return refuse("the weight_map is empty");
  return shards;
}

Status check_none_missing(const fs::path& folder, const ShardMap& shards) {
  std::string missing;
  size_t missing_count = 0;
  for (const auto& [name, tensors] : shards) {
    if (is_there(folder / name)) continue;
    ++missing_count;
    if (missing_count <= 3) missing += (missing.empty() ? "" : ", ") + (folder / name).string();
  }
  if (missing_count == 0) return Status::ok();
  if (missing_count > 3) missing += ", ...";
  return Status::request(fmt::format("{} of {} missing: {}: fetch the missing files", missing_count,
                                     shards.size(), missing));
}

Status append(ModelFileParts& parts, const std::string& path) {
  ASSIGN_OR_RETURN(auto map, MappedFile::open(path));
  ASSIGN_OR_RETURN(auto tensors, parse_safetensors(map->bytes(), path));
  for (TensorInfo& info : tensors) {
    info.file = parts.files.size();
    parts.tensors.push_back(std::move(info));
  }
  parts.files.push_back(std::move(map));
  return Status::ok();
}

// What lies beside the weights: config.json, where there is one.
Result<ModelFileParts> start(const fs::path& folder) {
  ModelFileParts parts;
  parts.format = FileFormat::kSafetensors;
  parts.format_name = "safetensors";
  parts.folder = folder.string();
  const fs::path config = folder / "config.json";
  if (is_there(config)) {
    ASSIGN_OR_RETURN(json value, read_json_file(config.string()));
    parts.config = std::make_unique<json>(std::move(value));
  }
  return parts;
}

Result<ModelFileParts> read_files(const fs::path& folder, const std::vector<std::string>& names) {
  ASSIGN_OR_RETURN(ModelFileParts parts, start(folder));
  for (const std::string& name : names) {
    RETURN_IF_ERROR(append(parts, (folder / name).string()));
  }
  if (names.size() > 1) parts.format_name = fmt::format("safetensors, {} parts", names.size());
  return parts;
}

Result<ModelFileParts> read_indexed(const fs::path& index) {
  const fs::path folder = index.parent_path();
  ASSIGN_OR_RETURN(const ShardMap shards, read_index(index.string()));
  RETURN_IF_ERROR(check_none_missing(folder, shards));
  std::vector<std::string> names;
  for (const auto& [name, tensors] : shards) names.push_back(name);
  ASSIGN_OR_RETURN(ModelFileParts parts, read_files(folder, names));
  // Every promise must hold. (Names that are in two files are found when the ModelFile is made.)
  std::unordered_map<std::string_view, size_t> file_of;
  for (const TensorInfo& info : parts.tensors) file_of[info.name] = info.file;
  for (size_t i = 0; i < names.size(); ++i) {
    for (const std::string& tensor : shards.at(names[i])) {
      const auto found = file_of.find(tensor);
      if (found == file_of.end() || found->second != i) {
        return Status::request(fmt::format("{}: says that tensor {} is in {}, where it is not",
                                           index.string(), quote(tensor), names[i]));
      }
    }
  }
  return parts;
}

std::vector<std::string> safetensors_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == kExtension) names.push_back(it->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

}  // namespace

bool has_safetensors(const std::string& folder) {
  return is_there(fs::path(folder) / kIndexName) || !safetensors_names(folder).empty();
}

Result<ModelFileParts> read_safetensors_folder(const std::string& folder) {
  const fs::path path(folder);
  if (is_there(path / kIndexName)) return read_indexed(path / kIndexName);
  if (is_there(path / kSingleName)) return read_files(path, {std::string(kSingleName)});
  const auto names = safetensors_names(path);
  if (names.empty()) return Status::request(folder + ": holds no .safetensors file");
  if (names.size() > kSafetensorsShardsMax) {
    return Status::request(
        fmt::format("{}: more than {} .safetensors files", folder, kSafetensorsShardsMax));
  }
  return read_files(path, names);
}

Result<ModelFileParts> read_safetensors(const std::string& path) {
  const fs::path file(path);
  if (path.ends_with(".index.json")) return read_indexed(file);
  const fs::path folder = file.parent_path();
  // A shard of an indexed model stands for the whole.
  if (is_there(folder / kIndexName) && file.stem().string().find("-of-") != std::string::npos) {
    return read_indexed(folder / kIndexName);
  }
  return read_files(folder, {file.filename().string()});
}

}  // namespace shoal::model

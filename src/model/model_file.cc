#include "model/model_file.h"

#include <fmt/format.h>

#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/foreign/quote.h"
#include "model/gguf/reader.h"
#include "model/safetensors/reader.h"

namespace shoal::model {
namespace {

namespace fs = std::filesystem;

// A misaligned tensor is rare (a header that was not padded): it is copied, so that kernels may
// load whole elements.
void realign(ModelFileParts& parts) {
  for (TensorInfo& info : parts.tensors) {
    const auto address = reinterpret_cast<uintptr_t>(info.data.data());
    if (info.data.empty() || address % info.type.alignment == 0) continue;
    auto copy = std::make_unique_for_overwrite<std::byte[]>(info.data.size());
    std::memcpy(copy.get(), info.data.data(), info.data.size());
    info.data = {copy.get(), info.data.size()};
    parts.realigned_bytes.push_back(std::move(copy));
  }
}

// The one model of a folder without safetensors.
Result<std::string> gguf_of_folder(const std::string& folder) {
  std::vector<std::string> models;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".gguf") continue;
    const auto shard = parse_shard_name(it->path().string());
    if (!shard || shard->number == 1) models.push_back(it->path().string());
  }
  if (models.size() == 1) return models.front();
  if (models.empty()) {
    return Status::request(folder + ": holds no model (.safetensors or .gguf files)");
  }
  return Status::request(fmt::format("{}: holds {} GGUF models, name one of them, such as {}",
                                     folder, models.size(), models.front()));
}

Result<ModelFileParts> read_file(const std::string& path) {
  if (path.ends_with(".safetensors") || path.ends_with(".index.json")) {
    return read_safetensors(path);
  }
  return read_gguf(path);
}

Result<ModelFileParts> read_any(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return read_file(path);
  if (has_safetensors(path)) return read_safetensors_folder(path);
  ASSIGN_OR_RETURN(const std::string gguf, gguf_of_folder(path));
  return read_gguf(gguf);
}

}  // namespace

ModelFileParts::ModelFileParts() = default;
ModelFileParts::~ModelFileParts() = default;
ModelFileParts::ModelFileParts(ModelFileParts&&) noexcept = default;
ModelFileParts& ModelFileParts::operator=(ModelFileParts&&) noexcept = default;

ModelFile::ModelFile(ModelFileParts parts) : parts_(std::move(parts)) {
  CHECK(!parts_.files.empty());
  name_ = parts_.files.front()->path();
}

ModelFile::~ModelFile() = default;

Result<std::unique_ptr<ModelFile>> ModelFile::create(ModelFileParts parts) {
  realign(parts);
  std::unique_ptr<ModelFile> file(new ModelFile(std::move(parts)));
  const auto& tensors = file->parts_.tensors;
  file->index_.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto [other, is_new] = file->index_.try_emplace(tensors[i].name, i);
    if (is_new) continue;
    const std::string& first = file->parts_.files[tensors[other->second].file]->path();
    const std::string& second = file->parts_.files[tensors[i].file]->path();
    const std::string where = first == second ? first : fmt::format("{} and in {}", first, second);
    return Status::request(
        fmt::format("tensor {} is there twice (duplicate): in {}", quote(tensors[i].name), where));
  }
  return file;
}

const TensorInfo* ModelFile::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &parts_.tensors[found->second];
}

std::vector<std::string> ModelFile::paths() const {
  std::vector<std::string> paths;
  paths.reserve(parts_.files.size());
  for (const auto& file : parts_.files) paths.push_back(file->path());
  return paths;
}

uint64_t ModelFile::file_bytes() const {
  uint64_t total = 0;
  for (const auto& file : parts_.files) total += file->bytes().size();
  return total;
}

uint64_t ModelFile::tensor_bytes() const {
  uint64_t total = 0;
  for (const TensorInfo& info : parts_.tensors) total += info.data.size();
  return total;
}

Result<std::unique_ptr<ModelFile>> open_model(const std::string& path) {
  ASSIGN_OR_RETURN(ModelFileParts parts, read_any(path));
  return ModelFile::create(std::move(parts));
}

}  // namespace shoal::model

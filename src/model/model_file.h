// ModelFile: the tensors and the metadata of a model on disk, whichever format it is in.
//
// open_model() takes a .gguf file (single, or any part of a split one), a .safetensors file, a
// model.safetensors.index.json, or a folder that holds one of these. Tensor data is mapped, not
// read: opening costs the headers only. Formats and limits: docs/gguf.md, docs/safetensors.md.
// Ownership: tensors, metadata and their spans live as long as the ModelFile.
// Invariants: names are unique; every data span has exactly the bytes that type and shape need and
// is aligned for its type (a misaligned tensor is copied once, at opening).
// Thread rule: immutable, safe from many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/mapped_file.h"
#include "base/status.h"
#include "model/gguf/metadata.h"
#include "model/shape.h"
#include "model/storage_type.h"

namespace shoal::model {

inline constexpr uint64_t kTensorNameBytesMax = 1024;

struct TensorInfo {
  std::string name;
  StorageType type;
  Shape shape;
  std::span<const std::byte> data;
  size_t file = 0;  // index into ModelFile::paths()

  std::optional<tensor::DType> dtype() const { return type.dtype; }
};

enum class FileFormat { kGguf, kSafetensors };

// What a reader of one format hands over: every span is inside its file and as long as type and
// shape need, but names may repeat and data may be misaligned.
struct ModelFileParts {
  ModelFileParts();
  ~ModelFileParts();
  ModelFileParts(ModelFileParts&&) noexcept;
  ModelFileParts& operator=(ModelFileParts&&) noexcept;

  FileFormat format = FileFormat::kGguf;
  std::string format_name;  // "GGUF v3", "safetensors"
  std::vector<std::unique_ptr<MappedFile>> files;
  std::vector<TensorInfo> tensors;
  GgufMetadata metadata;                                      // GGUF only
  std::unique_ptr<nlohmann::json> config;                     // config.json, safetensors only
  std::string folder;                                         // where the files lie
  std::vector<std::unique_ptr<std::byte[]>> realigned_bytes;  // copies of misaligned tensors
};

class ModelFile {
 public:
  // kRequest where two tensors have one name; copies the tensors that are misaligned.
  static Result<std::unique_ptr<ModelFile>> create(ModelFileParts parts);
  ~ModelFile();
  ModelFile(const ModelFile&) = delete;
  ModelFile& operator=(const ModelFile&) = delete;

  FileFormat format() const { return parts_.format; }
  const std::string& format_name() const { return parts_.format_name; }
  const std::vector<TensorInfo>& tensors() const { return parts_.tensors; }
  // The tensor of that name, or nullptr; constant time.
  const TensorInfo* find(std::string_view name) const;
  // Empty for safetensors.
  const GgufMetadata& metadata() const { return parts_.metadata; }
  // config.json of a safetensors folder; nullptr where there is none, and for GGUF.
  const nlohmann::json* config() const { return parts_.config.get(); }
  // Where the files lie: the place of tokenizer.json for safetensors.
  const std::string& folder() const { return parts_.folder; }
  // The files in order; messages about a model name the first one.
  std::vector<std::string> paths() const;
  const std::string& name() const { return name_; }
  // Bytes of all files together, and of the tensors alone.
  uint64_t file_bytes() const;
  uint64_t tensor_bytes() const;

 private:
  explicit ModelFile(ModelFileParts parts);

  ModelFileParts parts_;
  std::string name_;
  std::unordered_map<std::string_view, size_t> index_;
};

// kRequest with the file, the key or tensor, the place and the remedy where the model is not
// usable.
Result<std::unique_ptr<ModelFile>> open_model(const std::string& path);

}  // namespace shoal::model

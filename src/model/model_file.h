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

#include <array>
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
#include "model/gguf_metadata.h"
#include "model/storage_type.h"

namespace shoal::model {

// Row-major dimensions: [0] is the outermost, the last one is contiguous in memory. A weight of a
// linear layer is [outputs, inputs]. GGUF writes the same numbers in the other order: ne(0) is the
// contiguous one.
class Shape {
 public:
  static constexpr size_t kRankMax = 8;

  Shape() = default;
  Shape(std::initializer_list<uint64_t> dims);
  // dims.size() <= kRankMax.
  explicit Shape(std::span<const uint64_t> dims);

  size_t rank() const { return rank_; }
  uint64_t operator[](size_t i) const { return dims_[i]; }
  uint64_t ne(size_t i) const { return i < rank_ ? dims_[rank_ - 1 - i] : 1; }
  // The product; 1 for a scalar. Never overflows for the tensors of a ModelFile.
  uint64_t elements() const;
  std::span<const uint64_t> dims() const { return std::span(dims_).first(rank_); }
  // "[576, 1536]".
  std::string to_string() const;
  bool operator==(const Shape& other) const = default;

 private:
  std::array<uint64_t, kRankMax> dims_{};  // zero from rank_ on
  size_t rank_ = 0;
};

struct TensorInfo {
  std::string name;
  const StorageType* type = nullptr;  // never null in a ModelFile
  Shape shape;
  std::span<const std::byte> data;
  size_t file = 0;  // index into ModelFile::paths()

  std::optional<tensor::DType> dtype() const { return type->dtype; }
};

enum class FileFormat { kGguf, kSafetensors };

// What a reader of one format hands over; see the invariants above.
struct ModelFileParts {
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
  explicit ModelFile(ModelFileParts parts);
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
  ModelFileParts parts_;
  std::string name_;
  std::unordered_map<std::string_view, size_t> index_;
};

// kRequest with the file, the key or tensor, the place and the remedy where the model is not
// usable.
Result<std::unique_ptr<ModelFile>> open_model(const std::string& path);

}  // namespace shoal::model

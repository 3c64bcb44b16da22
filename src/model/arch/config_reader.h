// ConfigReader: typed access to a model's settings, whichever of the two formats holds them.
//
// GGUF keys live in the metadata, safetensors keys in config.json, where "a.b" means key b of the
// object a. Every getter gives nullopt where the key is absent (or null in JSON) and kRequest,
// naming file and key, where the value has another kind. Integers of any width are accepted.
// Borrows the ModelFile. Thread rule: immutable.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/model_file.h"

namespace shoal::model {

class ConfigReader {
 public:
  explicit ConfigReader(const ModelFile& file) : file_(&file) {}

  bool is_gguf() const { return file_->format() == FileFormat::kGguf; }
  const ModelFile& file() const { return *file_; }

  Result<std::optional<int64_t>> integer(const std::string& key) const;
  Result<std::optional<double>> number(const std::string& key) const;
  Result<std::optional<bool>> boolean(const std::string& key) const;
  Result<std::optional<std::string>> string(const std::string& key) const;
  // One number for each of `layers` layers: a list of that length, or one number for all.
  Result<std::optional<std::vector<int64_t>>> per_layer(const std::string& key,
                                                        size_t layers) const;
  Result<std::optional<std::vector<std::string>>> strings(const std::string& key) const;
  // Whether the key is there at all, null included.
  bool has(const std::string& key) const;

  // An integer from 1 to max that must be there.
  Result<int64_t> count(const std::string& key, int64_t max) const;
  // `value` if it lies in 1 .. max, else the refusal of the key.
  Result<int64_t> check_count(const std::string& key, int64_t value, int64_t max) const;
  // "<file>: the key 'k' <reason>".
  Status refuse(const std::string& key, std::string_view reason) const;
  Status missing(const std::string& key) const { return refuse(key, "is missing"); }

 private:
  const MetadataValue* metadata(const std::string& key) const;
  const nlohmann::json* json(const std::string& key) const;

  const ModelFile* file_;
};

}  // namespace shoal::model

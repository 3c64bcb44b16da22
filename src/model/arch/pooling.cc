#include "model/arch/pooling.h"

#include <fmt/format.h>

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/foreign/json.h"
#include "base/foreign/quote.h"

namespace shoal::model {
namespace {

using nlohmann::json;

void set_pooling(std::string_view name, ModelConfig& config) {
  if (name == "mean") {
    config.pooling = Pooling::kMean;
  } else if (name == "lasttoken" || name == "last") {
    config.pooling = Pooling::kLast;
  } else {
    config.unserved_embedding = fmt::format("the pooling {}", quote(name));
  }
}

Status read_gguf(const ConfigReader& reader, ModelConfig& config) {
  constexpr std::array<std::string_view, 5> kNames = {"", "mean", "cls", "last", "rank"};
  const std::string key = config.architecture + ".pooling_type";
  ASSIGN_OR_RETURN(const auto type, reader.integer(key));
  if (!type || *type == 0) return Status::ok();
  if (*type < 0 || *type >= static_cast<int64_t>(kNames.size())) {
    return reader.refuse(key, fmt::format("is {}, expected 0 to {}", *type, kNames.size() - 1));
  }
  set_pooling(kNames[static_cast<size_t>(*type)], config);
  return Status::ok();
}

// The part of a text behind its last dot.
std::string_view last_name(std::string_view text) { return text.substr(text.rfind('.') + 1); }

// 1_Pooling/config.json: a name, or in its older form a flag for each of several.
Status read_pooling_file(const std::string& path, ModelConfig& config) {
  ASSIGN_OR_RETURN(const json settings, read_json_file(path));
  if (!settings.is_object()) return Status::request(path + ": is no JSON object");
  if (const auto mode = settings.find("pooling_mode"); mode != settings.end()) {
    const auto* name = mode->get_ptr<const std::string*>();
    if (name == nullptr) return Status::request(path + ": the key 'pooling_mode' is no string");
    set_pooling(*name, config);
    return Status::ok();
  }
  constexpr std::string_view kPrefix = "pooling_mode_";
  constexpr std::string_view kSuffix = "_tokens";
  size_t modes = 0;
  for (const auto& [key, value] : settings.items()) {
    const bool is_set = value.is_boolean() && value.get<bool>();
    if (!is_set || !key.starts_with(kPrefix)) continue;
    std::string_view name = std::string_view(key).substr(kPrefix.size());
    if (name.ends_with(kSuffix)) name.remove_suffix(kSuffix.size());
    set_pooling(name, config);
    ++modes;
  }
  if (modes > 1) config.unserved_embedding = "several poolings, one behind the other";
  return Status::ok();
}

// modules.json: what stands between the decoder and an embedding. All are normalized here.
Status read_modules(const std::string& path, ModelConfig& config) {
  ASSIGN_OR_RETURN(const json modules, read_json_file(path));
  if (!modules.is_array()) return Status::request(path + ": is no JSON list");
  for (const json& module : modules) {
    const json* type = module.is_object() && module.contains("type") ? &module["type"] : nullptr;
    if (type == nullptr || !type->is_string()) {
      return Status::request(path + ": a module has no 'type'");
    }
    const std::string_view name = last_name(*type->get_ptr<const std::string*>());
    if (name == "Transformer" || name == "Pooling" || name == "Normalize") continue;
    config.unserved_embedding = fmt::format("the module {}", quote(name));
  }
  return Status::ok();
}

}  // namespace

Status read_pooling(const ConfigReader& reader, ModelConfig& config) {
  if (reader.is_gguf()) return read_gguf(reader, config);
  const std::filesystem::path folder(reader.file().folder());
  const std::filesystem::path pooling = folder / "1_Pooling" / "config.json";
  const std::filesystem::path modules = folder / "modules.json";
  std::error_code error;
  if (std::filesystem::exists(pooling, error)) {
    RETURN_IF_ERROR(read_pooling_file(pooling.string(), config));
  }
  if (!std::filesystem::exists(modules, error)) return Status::ok();
  return read_modules(modules.string(), config);
}

}  // namespace shoal::model

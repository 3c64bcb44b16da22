// Fetching a known model into a folder: download, check, unpack, put in place.
//
// Thread rule: safe from any thread and process; a lock file in the folder orders them.
#pragma once

#include <string>

#include "base/status.h"
#include "model/store.h"

namespace shoal::model {

struct FetchResult {
  std::string path;
  bool was_fetched = false;  // false: it was there, or another process put it there meanwhile
};

// Where the model lies in the folder once it is there.
std::string cached_path(const KnownModel& model, const std::string& folder);
// Whether it is there, whole.
bool is_cached(const KnownModel& model, const std::string& folder);

// Creates the folder where needed. On failure nothing but the lock file stays behind.
Result<FetchResult> fetch(const KnownModel& model, const std::string& folder,
                          const StoreOptions& options);

}  // namespace shoal::model

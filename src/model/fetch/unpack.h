// Taking one file out of a zip archive, with its size and SHA-256 checked on the way.
//
// Thread rule: safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"

namespace shoal::model {

struct UnpackRequest {
  std::string archive;
  std::string member;  // its whole path in the archive
  std::string target;  // written anew, and flushed to the disk
  uint64_t bytes = 0;  // exactly this many
  std::string sha256;
  std::function<void(uint64_t bytes)> on_progress = {};  // may be empty
};

// kRequest where the archive is broken, lacks the member, or holds other bytes; no more than
// `bytes` are written whatever the archive says. The target may be left incomplete.
Status unpack(const UnpackRequest& request);

}  // namespace shoal::model

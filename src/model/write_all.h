// write_all: a run of bytes into a file, whole or not at all for the caller.
//
// Thread rule: one thread for each descriptor.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"

namespace shoal::model {

// kRequest where the disk is full, kNode for any other failure; both name the path.
Status write_all(int fd, std::span<const std::byte> bytes, const std::string& path);

}  // namespace shoal::model

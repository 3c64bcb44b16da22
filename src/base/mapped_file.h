// MappedFile: a whole file mapped read-only.
//
// Invariant: bytes() stays valid for the life of the object. A file that another process truncates
// while it is mapped raises SIGBUS: model files must not be changed while they are in use.
// Thread rule: safe to read from many threads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"

namespace shoal {

class MappedFile {
 public:
  // Fails with kRequest and the path where there is no readable regular file. An empty file maps
  // to empty bytes.
  static Result<std::unique_ptr<MappedFile>> open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes)
      : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace shoal

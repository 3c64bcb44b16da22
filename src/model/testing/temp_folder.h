// TempFolder: a folder of its own for one test, removed with everything in it.
//
// Thread rule: one thread at a time.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/check.h"

namespace shoal::model::testing {

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "shoal-model-XXXXXX").string();
    CHECK(::mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempFolder() {
    std::error_code error;
    std::filesystem::remove_all(path_, error);
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;

  std::string path(std::string_view name) const { return (path_ / name).string(); }
  std::string path() const { return path_.string(); }

  // Writes the file, with the folders before it; returns its path.
  std::string write(std::string_view name, std::span<const std::byte> bytes) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    CHECK(out.good());
    return file.string();
  }
  std::string write(std::string_view name, std::string_view text) const {
    return write(name, bytes_of(text));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace shoal::model::testing

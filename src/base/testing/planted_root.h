// PlantedRoot: a folder with a /proc and /sys that a test writes, gone with the object.
//
// Thread rule: test code, one thread.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace shoal::testing {

class PlantedRoot {
 public:
  PlantedRoot() {
    std::string pattern = ::testing::TempDir() + "planted_root_XXXXXX";
    EXPECT_NE(mkdtemp(pattern.data()), nullptr);
    path_ = pattern;
  }
  ~PlantedRoot() { std::filesystem::remove_all(path_); }
  PlantedRoot(const PlantedRoot&) = delete;
  PlantedRoot& operator=(const PlantedRoot&) = delete;

  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ + "/" + name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace shoal::testing

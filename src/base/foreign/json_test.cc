#include "base/foreign/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace shoal {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string nested(size_t levels) { return std::string(levels, '[') + std::string(levels, ']'); }

std::string refusal(std::string_view text) {
  const auto parsed = parse_json(text, "some.json");
  EXPECT_FALSE(parsed.is_ok()) << text;
  EXPECT_EQ(parsed.status().code(), StatusCode::kRequest);
  return parsed.status().message();
}

TEST(Json, GivesTheValueOfAText) {
  const auto parsed = parse_json(R"( {"a": [1, "two", null, {"b": true}]} )", "some.json");
  ASSERT_TRUE(parsed.is_ok()) << parsed.status().message();
  EXPECT_EQ((*parsed)["a"][1], "two");
  EXPECT_EQ((*parsed)["a"][3]["b"], true);
}

TEST(Json, DepthIsBoundedBeforeAnythingIsBuilt) {
  EXPECT_TRUE(parse_json(nested(kJsonDepthMax), "some.json").is_ok());
  EXPECT_THAT(refusal(nested(kJsonDepthMax + 1)), AllOf(HasSubstr("some.json"), HasSubstr("32")));
  // Copying or comparing the value of such a text would need more stack than there is.
  EXPECT_THAT(refusal(nested(5'000'000)), HasSubstr("nested deeper than 32"));
  EXPECT_THAT(refusal(R"({"a": )" + std::string(1'000'000, '[')), HasSubstr("nested deeper"));
}

TEST(Json, WhatIsNoJsonIsNamedByFileAndByte) {
  EXPECT_THAT(refusal("{\"a\": x}"), HasSubstr("some.json: not valid JSON at byte 7"));
  for (const char* text : {"", "{", "[1,]", "1 2", "\"\xff\"", "nan"}) {
    EXPECT_THAT(refusal(text), HasSubstr("not valid JSON at byte"));
  }
}

TEST(Json, AKeyThatIsThereTwiceIsADuplicate) {
  EXPECT_THAT(refusal(R"({"a": 1, "b\n": 2, "b\n": 3})"),
              AllOf(HasSubstr(R"('b\x0a')"), HasSubstr("duplicate")));
  EXPECT_TRUE(parse_json(R"([{"a": 1}, {"a": {"a": 2}}])", "some.json").is_ok());
}

TEST(Json, FilesAreReadUpToALimit) {
  const std::string path = ::testing::TempDir() + "json_" + std::to_string(::getpid());
  std::ofstream(path, std::ios::binary) << R"({"a": 1})";
  const auto read = read_json_file(path);
  ASSERT_TRUE(read.is_ok()) << read.status().message();
  EXPECT_EQ((*read)["a"], 1);
  std::filesystem::resize_file(path, kJsonFileBytesMax + 1);  // a hole, no bytes on the disk
  const auto large = read_json_file(path);
  EXPECT_THAT(large.status().message(), AllOf(HasSubstr(path), HasSubstr("67108865")));
  std::filesystem::remove(path);
  EXPECT_THAT(read_json_file(path).status().message(), HasSubstr(path));
}

}  // namespace
}  // namespace shoal

#include "server/api/raw_json.h"

#include <gmock/gmock.h>

#include <string>

#include "server/api/fields.h"

namespace shoal::server {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kText =
    R"( {"a" : {"z": 1, "b": [ {"y": "\"}]" , "x": -1.5e3}, [], "t" ], "q\u0022": true},)"
    R"("a2":{}, "list":[10, 20 ,30]} )";

TEST(RawJson, GivesAValueAsItWasWritten) {
  EXPECT_EQ(raw_json(kText, "/a/b/0"), R"({"y": "\"}]" , "x": -1.5e3})");
  EXPECT_EQ(raw_json(kText, "/a/b/0/y"), R"("\"}]")");
  EXPECT_EQ(raw_json(kText, "/a/b/0/x"), "-1.5e3");
  EXPECT_EQ(raw_json(kText, "/a/b/1"), "[]");
  EXPECT_EQ(raw_json(kText, "/a/b/2"), "\"t\"");
  EXPECT_EQ(raw_json(kText, "/a/q\""), "true");
  EXPECT_EQ(raw_json(kText, "/a2"), "{}");
  EXPECT_EQ(raw_json(kText, "/list/2"), "30");
  EXPECT_EQ(raw_json("7", ""), "7");
}

TEST(RawJson, HasNothingWhereNothingIs) {
  for (const char* pointer :
       {"/b", "/a/z/c", "/a/b/3", "/a/b/x", "/a2/c", "/list/-1", "/a/b/1/0"}) {
    EXPECT_EQ(raw_json(kText, pointer), std::nullopt) << pointer;
  }
}

TEST(RawJson, OfEqualKeysTakesTheLastAsTheParserDoes) {
  constexpr std::string_view kTwice = R"({"k": {"v": 1}, "\u006b": {"v": 2}})";
  EXPECT_EQ(raw_json(kTwice, "/k/v"), "2");
  EXPECT_EQ(Json::parse(kTwice).at("k").at("v"), 2);
}

TEST(RawJson, EndsOnTextsThatAreNoJson) {
  const std::string text = R"({"a":{"b":["c\")";
  for (size_t size = 0; size <= text.size(); ++size) {
    (void)raw_json(text.substr(0, size), "/a/b/0");
  }
  EXPECT_EQ(raw_json("}", "/a"), std::nullopt);
  EXPECT_EQ(raw_json("", "/a"), std::nullopt);
}

TEST(RawJson, AMemberIsTheTextThatTheClientWrote) {
  constexpr std::string_view kWritten =
      R"( { "b" : [1, {"z":1,"a":2}] , "a\u0062": "x,\"}" ,"n":-1.5e3} )";
  EXPECT_EQ(raw_member(kWritten, "b"), R"([1, {"z":1,"a":2}])");
  EXPECT_EQ(raw_member(kWritten, "ab"), R"("x,\"}")");
  EXPECT_EQ(raw_member(kWritten, "n"), "-1.5e3");
  EXPECT_EQ(raw_member(kWritten, "z"), "");
}

TEST(RawJson, OfTwoMembersOfANameTheLastCountsAsItDoesForTheParser) {
  EXPECT_EQ(raw_member(R"({"a":1,"b":0,"a":{"c":2}})", "a"), R"({"c":2})");
}

TEST(RawJson, ItemsAreCutAtTheirCommas) {
  EXPECT_THAT(raw_items(R"( [ {"a":[1,2]} ,"b,]", 3,null ] )"),
              ElementsAre(R"({"a":[1,2]})", R"("b,]")", "3", "null"));
  EXPECT_THAT(raw_items("[]"), IsEmpty());
  EXPECT_THAT(raw_items("{}"), IsEmpty());
  EXPECT_EQ(raw_member("[1]", "a"), "");
  EXPECT_EQ(raw_member("\xEF\xBB\xBF{\"a\":1}", "a"), "1");
}

TEST(RawJson, OnOneLineNothingButWhiteSpaceBetweenItsPartsChanges) {
  EXPECT_EQ(on_one_line("{\n  \"b\" :[1 ,2],\t\"a\\\"\": \"x : \\\\\" }"),
            R"({"b": [1, 2], "a\"": "x : \\"})");
}

}  // namespace
}  // namespace shoal::server

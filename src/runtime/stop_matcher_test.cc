#include "runtime/stop_matcher.h"

#include <gtest/gtest.h>

#include "runtime/sampling/random.h"

namespace shoal::runtime {
namespace {

StopMatcher make(std::vector<std::string> stops) {
  auto matcher = StopMatcher::create(std::move(stops));
  CHECK_MSG(matcher.is_ok(), matcher.status().message().c_str());
  return std::move(matcher).value();
}

TEST(StopMatcher, C43_WhatWasHeldBackIsDeliveredAtTheEnd) {
  StopMatcher matcher = make({"endQZX"});
  EXPECT_EQ(matcher.push("the "), "the ");
  EXPECT_EQ(matcher.push("end"), "");
  EXPECT_FALSE(matcher.matched().has_value());
  EXPECT_EQ(matcher.finish(), "end");
}

TEST(StopMatcher, C43_ALongStopDelaysNothingThatIsNoPrefixOfIt) {
  StopMatcher matcher = make({std::string(500, 'z') + "!"});
  EXPECT_EQ(matcher.push("a"), "a");
  EXPECT_EQ(matcher.push("bz"), "b");
  EXPECT_EQ(matcher.push("zz"), "");
  EXPECT_EQ(matcher.push("y"), "zzzy");
}

TEST(StopMatcher, C62_AStopInTheFirstPieceLeavesNoText) {
  StopMatcher matcher = make({"\n"});
  EXPECT_EQ(matcher.push("\nmore"), "");
  EXPECT_EQ(matcher.matched(), "\n");
  EXPECT_EQ(matcher.push("text"), "");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, C40_AStopThatSharesBytesWithACharacterDoesNotCutIt) {
  // U+00E9 and U+00E8 share their first byte.
  StopMatcher matcher = make({"\u00e9"});
  EXPECT_EQ(matcher.push("a\u00e8"), "a\u00e8");
  EXPECT_EQ(matcher.push("b\u00e9c"), "b");
}

TEST(StopMatcher, TheStopThatEndsFirstCountsAndOfThoseTheLongest) {
  StopMatcher first = make({"abcd", "bc"});
  EXPECT_EQ(first.push("xabcd"), "xa");
  EXPECT_EQ(first.matched(), "bc");
  StopMatcher longest = make({"c", "abc"});
  EXPECT_EQ(longest.push("xab"), "x");
  EXPECT_EQ(longest.push("c"), "");
  EXPECT_EQ(longest.matched(), "abc");
}

TEST(StopMatcher, RepeatedBeginningsAreFollowed) {
  StopMatcher matcher = make({"aab"});
  EXPECT_EQ(matcher.push("aaaab!"), "aa");
  StopMatcher restart = make({"ababac"});
  EXPECT_EQ(restart.push("ab"), "");
  EXPECT_EQ(restart.push("ababac"), "ab");
}

TEST(StopMatcher, WithoutStopsEverythingPasses) {
  StopMatcher matcher = make({});
  EXPECT_EQ(matcher.push("all of it"), "all of it");
  EXPECT_EQ(matcher.finish(), "");
}

TEST(StopMatcher, SenselessStopsAreRefused) {
  EXPECT_EQ(StopMatcher::create({"a", ""}).status().code(), StatusCode::kRequest);
  EXPECT_FALSE(StopMatcher::create({std::string(StopMatcher::kStopBytesMax + 1, 'a')}).is_ok());
  EXPECT_FALSE(StopMatcher::create(std::vector<std::string>(65, "a")).is_ok());
}

// Against the definition, over random texts of two letters cut at random.
TEST(StopMatcher, TheResultDoesNotDependOnHowTheTextIsCut) {
  CounterRandom random(3);
  const auto below = [&](size_t limit) {
    const auto value = static_cast<size_t>(random.peek() * static_cast<double>(limit));
    random.advance();
    return value;
  };
  const auto word = [&](size_t length) {
    std::string out;
    for (size_t i = 0; i < length; ++i) out += below(2) == 0 ? 'a' : 'b';
    return out;
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (size_t i = 0; i <= below(3); ++i) stops.push_back(word(1 + below(6)));
    const std::string text = word(below(30));
    std::string expected = text;
    for (size_t end = 1; end <= text.size() && expected == text; ++end) {
      size_t longest = 0;
      for (const std::string& stop : stops) {
        if (std::string_view(text).substr(0, end).ends_with(stop)) {
          longest = std::max(longest, stop.size());
        }
      }
      if (longest > 0) expected = text.substr(0, end - longest);
    }
    StopMatcher matcher = make(stops);
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const size_t count = 1 + below(4);
      out += matcher.push(std::string_view(text).substr(at, count));
      at += count;
    }
    out += matcher.finish();
    ASSERT_EQ(out, expected) << text;
  }
}

}  // namespace
}  // namespace shoal::runtime

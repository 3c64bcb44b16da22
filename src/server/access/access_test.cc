#include "server/access/access.h"

#include <gmock/gmock.h>

namespace shoal::server {
namespace {

using ::testing::HasSubstr;

ApiKeys keys(std::string_view text) {
  auto parsed = ApiKeys::parse(text);
  CHECK_MSG(parsed.is_ok(), parsed.status().message().c_str());
  return std::move(parsed).value();
}

int status_of(const Access& access, const std::vector<Header>& headers, bool needs_key = true) {
  const auto refused = access.refuse(headers, needs_key);
  return refused ? refused->status : 200;
}

TEST(ApiKeys, AreReadFromLinesWithoutCommentsAndSpaces) {
  const ApiKeys read = keys("# for the tests\n\n  first-key-123 \r\nsecond-key-123");
  EXPECT_EQ(read.size(), 2U);
  EXPECT_TRUE(read.contains("first-key-123"));
  EXPECT_TRUE(read.contains("second-key-123"));
  EXPECT_FALSE(read.contains("first-key-12"));
  EXPECT_FALSE(read.contains("first-key-1234"));
  EXPECT_FALSE(read.contains(""));
}

TEST(ApiKeys, ThatAreShortOrHaveSpacesAreRefusedByLineAndNotShown) {
  const auto is_short = ApiKeys::parse("long-enough\nsecret");
  ASSERT_FALSE(is_short.is_ok());
  EXPECT_THAT(is_short.status().message(), HasSubstr("line 2"));
  EXPECT_THAT(is_short.status().message(), Not(HasSubstr("secret")));
  EXPECT_FALSE(ApiKeys::parse("long enough key").is_ok());
  EXPECT_FALSE(ApiKeys::parse("# nothing\n").is_ok());
}

TEST(Access, WithoutKeysTakesAnyAndAnEmptyOne) {  // C55
  const Access access({});
  EXPECT_EQ(status_of(access, {}), 200);
  EXPECT_EQ(status_of(access, {{"Authorization", "Bearer "}}), 200);
  EXPECT_EQ(status_of(access, {{"Authorization", "Bearer whatever"}}), 200);
}

TEST(Access, WithKeysTakesThemInEitherHeader) {
  const Access access({.keys = keys("a-good-key"), .origins = {}});
  EXPECT_EQ(status_of(access, {{"authorization", "bearer a-good-key"}}), 200);
  EXPECT_EQ(status_of(access, {{"X-Api-Key", "a-good-key"}}), 200);
  EXPECT_EQ(status_of(access, {{"Authorization", "Bearer a-bad-key"}}), 401);
  EXPECT_EQ(status_of(access, {{"Authorization", "Basic a-good-key"}}), 401);
  EXPECT_EQ(status_of(access, {{"X-Api-Key", "x"}, {"Authorization", "Bearer a-good-key"}}), 200);
  EXPECT_EQ(status_of(access, {{"X-Api-Key", "a-good-key"}, {"Authorization", "Bearer x"}}), 200);
  EXPECT_EQ(status_of(access, {{"X-Api-Key", "x"}, {"Authorization", "Bearer y"}}), 401);
  EXPECT_EQ(status_of(access, {}), 401);
  EXPECT_EQ(status_of(access, {}, false), 200);
}

TEST(Access, LetsPagesOfAllowedOriginsIn) {
  const Access none({});
  EXPECT_EQ(status_of(none, {{"Origin", "https://evil.example"}}, false), 403);
  const Access one({.keys = {}, .origins = {"https://good.example"}});
  EXPECT_EQ(status_of(one, {{"Origin", "https://good.example"}}), 200);
  EXPECT_EQ(status_of(one, {{"Origin", "https://evil.example"}}), 403);
  const Access all({.keys = {}, .origins = {"*"}});
  EXPECT_EQ(status_of(all, {{"Origin", "null"}}), 200);
  std::vector<Header> headers;
  one.add_headers({{"Origin", "https://good.example"}}, &headers);
  EXPECT_EQ(find_header(headers, "access-control-allow-origin"), "https://good.example");
  headers.clear();
  one.add_headers({{"Origin", "https://evil.example"}}, &headers);
  EXPECT_EQ(find_header(headers, "access-control-allow-origin"), std::nullopt);
}

}  // namespace
}  // namespace shoal::server

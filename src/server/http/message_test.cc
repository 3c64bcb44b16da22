#include "server/http/message.h"

#include <gmock/gmock.h>

namespace shoal::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Message, HeadersAreFoundWhateverTheCaseOfTheirLetters) {
  const std::vector<Header> headers = {{"Content-Type", "a"}, {"content-type", "b"}};
  EXPECT_EQ(find_header(headers, "CONTENT-TYPE"), "a");
  EXPECT_EQ(find_header(headers, "content"), std::nullopt);
}

TEST(Message, PercentSignsAreDecodedOrTheTextIsRefused) {
  EXPECT_EQ(percent_decode("a%2Fb%20c"), "a/b c");
  EXPECT_EQ(percent_decode("100%"), std::nullopt);
  EXPECT_EQ(percent_decode("%zz"), std::nullopt);
}

TEST(Message, TheHeadHasNoLineBreakFromAValue) {
  const std::string head =
      format_head({.status = 404, .content_type = "text/plain", .content_length = 3},
                  {{"X-Echo", "a\r\nSet-Cookie: b"}});
  EXPECT_THAT(head, StartsWith("HTTP/1.1 404 Not Found\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Length: 3\r\n"));
  EXPECT_THAT(head, HasSubstr("X-Echo: a  Set-Cookie: b\r\n"));
  EXPECT_THAT(head, EndsWith("\r\n\r\n"));
}

}  // namespace
}  // namespace shoal::server

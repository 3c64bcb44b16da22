#include "text/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace shoal::text {
namespace {

const std::string kBad(kReplacementCharacter);

TEST(TakeCharacters, MovesWholeCharactersAndKeepsTheBeginningOfOne) {
  std::string pending = "aé€🙂\xF0\x9F\x99";
  std::string out = "<";
  take_characters(pending, out);
  EXPECT_EQ(out, "<aé€🙂");
  EXPECT_EQ(pending, "\xF0\x9F\x99");
  pending += "\x82";
  take_characters(pending, out);
  EXPECT_EQ(out, "<aé€🙂🙂");
  EXPECT_EQ(pending, "");
}

TEST(ValidUtf8Bytes, StopsBeforeTheFirstByteThatIsNoPartOfACharacter) {
  EXPECT_EQ(valid_utf8_bytes(""), 0U);
  EXPECT_EQ(valid_utf8_bytes("aé€🙂"), 10U);
  EXPECT_EQ(valid_utf8_bytes("\xFF"), 0U);
  EXPECT_EQ(valid_utf8_bytes("ab\xC3(c"), 2U);
  EXPECT_EQ(valid_utf8_bytes("a\xED\xA0\x80"), 1U);  // a surrogate
  EXPECT_EQ(valid_utf8_bytes("é\xE2\x82"), 2U);      // cut short
}

TEST(TakeCharacters, ReplacesEachLongestBrokenPieceOnce) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\x80z", kBad + "z"},                                   // a continuation alone
      {"\xC0\xAFz", kBad + kBad + "z"},                        // overlong
      {"\xE0\x80\x80z", kBad + kBad + kBad + "z"},             // overlong
      {"\xED\xA0\x80z", kBad + kBad + kBad + "z"},             // a surrogate
      {"\xF4\x90\x80\x80z", kBad + kBad + kBad + kBad + "z"},  // above U+10FFFF
      {"\xF5z", kBad + "z"},
      {"\xE2\x82z", kBad + "z"},  // cut short: one piece
      {"\xF0\x9F\x99\xF0\x9F\x99\x82z", kBad + "🙂z"},
      {"\xC3\xC3\xA9z", kBad + "éz"},
  };
  for (const auto& [bytes, expected] : cases) {
    std::string pending = bytes;
    std::string out;
    take_characters(pending, out);
    EXPECT_EQ(out, expected);
    EXPECT_EQ(pending, "");
  }
}

TEST(TakeCharacters, GivesTheSameHoweverTheBytesAreCut) {
  const std::string bytes = "a\xF0\x9F\x99\x82\xE2\x82\xACz\xE2\x28\xA1\xC3\xA9\xFF\xF0\x9F\x41";
  std::string whole_pending = bytes;
  std::string whole;
  take_characters(whole_pending, whole);
  for (size_t first = 0; first <= bytes.size(); ++first) {
    for (size_t second = first; second <= bytes.size(); ++second) {
      std::string pending;
      std::string out;
      for (const auto& part :
           {bytes.substr(0, first), bytes.substr(first, second - first), bytes.substr(second)}) {
        pending += part;
        take_characters(pending, out);
        EXPECT_LE(pending.size(), 3u);
      }
      EXPECT_EQ(out, whole);
      EXPECT_EQ(pending, whole_pending);
    }
  }
}

}  // namespace
}  // namespace shoal::text

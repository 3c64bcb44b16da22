#include "cli/support/format.h"

#include <gtest/gtest.h>

namespace shoal::cli {
namespace {

TEST(Format, BytesAndCountsKeepThreeDigits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.00 kB");
  EXPECT_EQ(format_bytes(98'362'432), "98.4 MB");
  EXPECT_EQ(format_bytes(999'999'999), "1.00 GB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "18.4 EB");
  EXPECT_EQ(format_count(134'515'008), "135 M");
  EXPECT_EQ(format_count(7), "7");
}

TEST(Format, SecondsChooseTheirUnit) {
  EXPECT_EQ(format_seconds(12.3e-6), "12.3 µs");
  EXPECT_EQ(format_seconds(0.0034), "3.4 ms");
  EXPECT_EQ(format_seconds(1.25), "1.25 s");
  EXPECT_EQ(format_seconds(125), "2 min 5 s");
}

TEST(Format, ATableSetsNumbersToTheRightAndHasNoTrailingSpaces) {
  Table table({{"name"}, {"size", Table::Align::kRight}, {"note"}});
  table.add_row({"é", "1", ""});
  table.add_row({"long name", "1000", "x"});
  EXPECT_EQ(table.to_string(),
            "name       size  note\n"
            "é             1\n"
            "long name  1000  x\n");
}

TEST(Format, KeysAndValuesStandInColumns) {
  KeyValueList list;
  list.add("a", "1");
  list.add("long", "2");
  EXPECT_EQ(list.to_string(), "a     1\nlong  2\n");
}

TEST(Format, Utf8LengthTakesWholeCharactersOnly) {
  EXPECT_EQ(utf8_length(""), 0U);
  EXPECT_EQ(utf8_length("a"), 1U);
  EXPECT_EQ(utf8_length("é"), 2U);
  EXPECT_EQ(utf8_length("漢x"), 3U);
  EXPECT_EQ(utf8_length("🙂"), 4U);
  EXPECT_EQ(utf8_length("\xF0\x9F\x99"), 0U);  // cut off
  EXPECT_EQ(utf8_length("\xC0\x80"), 0U);      // overlong
  EXPECT_EQ(utf8_length("\xE0\x80\x80"), 0U);  // overlong
  EXPECT_EQ(utf8_length("\xED\xA0\x80"), 0U);  // surrogate
  EXPECT_EQ(utf8_length("\xF4\x90\x80\x80"), 0U);
  EXPECT_EQ(utf8_length("\x80"), 0U);
}

TEST(Format, EscapeShowsWhatCannotBePrinted) {
  EXPECT_EQ(escape("a\n\t\\"), "a\\n\\t\\\\");
  EXPECT_EQ(escape("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(escape("é🙂"), "é🙂");
  EXPECT_EQ(escape("\xFF\xC3"), "\\xff\\xc3");
  EXPECT_EQ(escape("\xC2\x85"), "\\xc2\\x85");  // a C1 control character
}

TEST(Format, ControlsAreTakenOutOfWhatAModelSays) {
  EXPECT_EQ(without_controls("a\x1b[2Jb\r\n\tc"), "a[2Jb\n\tc");
  EXPECT_EQ(without_controls("é\xC2\x9B"
                             "31m"),
            "é31m");
}

}  // namespace
}  // namespace shoal::cli

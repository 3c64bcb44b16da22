// Text for people: tables, byte counts, durations, and columns on a terminal.
//
// Thread rule: pure functions and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::cli {

// "99.1 MB": powers of 1000, three digits.
std::string format_bytes(uint64_t bytes);
// "134.5 M": powers of 1000, for parameters and tokens.
std::string format_count(uint64_t count);
// "1.25 s", "3.4 ms", "12 µs", "2 min 5 s".
std::string format_seconds(double seconds);

// Columns that a text takes on a terminal: one per code point, good enough for Latin text.
size_t display_width(std::string_view text);

// Rows of cells under headings. Numbers are set to the right.
class Table {
 public:
  enum class Align { kLeft, kRight };
  struct Column {
    std::string heading;
    Align align = Align::kLeft;
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  // As many cells as columns.
  void add_row(std::vector<std::string> cells);
  // Ends with a newline; no trailing spaces.
  std::string to_string() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// "key    value" lines with the values in one column.
class KeyValueList {
 public:
  void add(std::string key, std::string value);
  std::string to_string() const;

 private:
  std::vector<std::pair<std::string, std::string>> lines_;
};

// Text that may hold control characters, as one printable line: \n, \t, \x1b, and backslash
// doubled. Bytes that are no UTF-8 become \xNN.
std::string escape(std::string_view text);

// Whole UTF-8 text without control characters other than newline and tab: a model's output must not
// steer the terminal.
std::string without_controls(std::string_view text);

// How many bytes the UTF-8 character at the start of `text` has; 0 where there is none.
size_t utf8_length(std::string_view text);

}  // namespace shoal::cli

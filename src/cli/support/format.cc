#include "cli/support/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"

namespace shoal::cli {
namespace {

// value with its prefix of 1000, three significant digits from 1000 on.
std::string scaled(uint64_t value, std::string_view unit, std::string_view separator) {
  static constexpr std::array<std::string_view, 7> kPrefixes = {"", "k", "M", "G", "T", "P", "E"};
  if (value < 1000) {
    return fmt::format("{}{}{}", value, unit.empty() ? "" : separator, unit);
  }
  auto scaled_value = static_cast<double>(value);
  size_t power = 0;
  while (scaled_value >= 999.5 && power + 1 < kPrefixes.size()) {
    scaled_value /= 1000;
    ++power;
  }
  const int decimals = scaled_value < 9.995 ? 2 : scaled_value < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}{}{}", scaled_value, decimals, separator, kPrefixes[power], unit);
}

void pad(std::string* line, size_t columns) { line->append(columns, ' '); }

}  // namespace

std::string format_bytes(uint64_t bytes) { return scaled(bytes, "B", " "); }

std::string format_count(uint64_t count) { return scaled(count, "", " "); }

std::string format_seconds(double seconds) {
  if (seconds < 1e-3) return fmt::format("{:.3g} µs", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.3g} ms", seconds * 1e3);
  if (seconds < 100) return fmt::format("{:.3g} s", seconds);
  const auto whole = std::llround(seconds);
  return fmt::format("{} min {} s", whole / 60, whole % 60);
}

size_t utf8_length(std::string_view text) {
  if (text.empty()) return 0;
  const auto lead = static_cast<unsigned char>(text[0]);
  size_t length = 0;
  uint32_t code_point = 0;
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
    code_point = lead & 0x1FU;
  } else if ((lead & 0xF0U) == 0xE0) {
    length = 3;
    code_point = lead & 0x0FU;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    code_point = lead & 0x07U;
  } else {
    return 0;
  }
  if (text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte & 0xC0U) != 0x80) return 0;
    code_point = (code_point << 6U) | (byte & 0x3FU);
  }
  const bool is_overlong =
      (length == 3 && code_point < 0x800) || (length == 4 && code_point < 0x10000);
  const bool is_surrogate = code_point >= 0xD800 && code_point <= 0xDFFF;
  return is_overlong || is_surrogate || code_point > 0x10FFFF ? 0 : length;
}

size_t display_width(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80;
  }));
}

std::string escape(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    const bool is_c1 = length == 2 && byte == 0xC2 && static_cast<unsigned char>(text[1]) < 0xA0;
    if (byte == '\\') {
      out += "\\\\";
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (byte == '\r') {
      out += "\\r";
    } else if (length == 0 || byte < 0x20 || byte == 0x7F || is_c1) {
      for (size_t i = 0; i < std::max<size_t>(length, 1); ++i) {
        out += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[i]));
      }
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(length, 1));
  }
  return out;
}

std::string without_controls(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) continue;
    const bool is_c1 =
        byte == 0xC2 && i + 1 < text.size() && static_cast<unsigned char>(text[i + 1]) < 0xA0;
    if (is_c1) {
      ++i;
      continue;
    }
    out += text[i];
  }
  return out;
}

void Table::add_row(std::vector<std::string> cells) {
  CHECK(cells.size() == columns_.size());
  rows_.push_back(std::move(cells));
}

std::string Table::to_string() const {
  std::vector<size_t> widths(columns_.size());
  for (size_t i = 0; i < columns_.size(); ++i) {
    widths[i] = display_width(columns_[i].heading);
    for (const auto& row : rows_) widths[i] = std::max(widths[i], display_width(row[i]));
  }
  std::string out;
  const auto add_line = [&](const auto& cell_of) {
    std::string line;
    for (size_t i = 0; i < columns_.size(); ++i) {
      const std::string& cell = cell_of(i);
      const size_t padding = widths[i] - display_width(cell);
      if (i > 0) pad(&line, 2);
      if (columns_[i].align == Align::kRight) pad(&line, padding);
      line += cell;
      if (columns_[i].align == Align::kLeft) pad(&line, padding);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  add_line([&](size_t i) -> const std::string& { return columns_[i].heading; });
  for (const auto& row : rows_) add_line([&](size_t i) -> const std::string& { return row[i]; });
  return out;
}

void KeyValueList::add(std::string key, std::string value) {
  lines_.emplace_back(std::move(key), std::move(value));
}

std::string KeyValueList::to_string() const {
  size_t width = 0;
  for (const auto& [key, value] : lines_) width = std::max(width, display_width(key));
  std::string out;
  for (const auto& [key, value] : lines_) {
    out += key;
    if (!value.empty()) pad(&out, width - display_width(key) + 2);
    out += value + "\n";
  }
  return out;
}

}  // namespace shoal::cli

#include "server/api/raw_json.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

namespace shoal::server {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// Reads forward through a text that was found to be valid. On any other it ends early.
class Scanner {
 public:
  // The parser takes a byte order mark too.
  explicit Scanner(std::string_view text) : text_(text) {
    if (text.starts_with("\xEF\xBB\xBF")) at_ = 3;
  }

  // The next character that is no white space; 0 at the end.
  char peek() {
    at_ = std::min(text_.find_first_not_of(kSpace, at_), text_.size());
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool take(char wanted) {
    const bool is_there = peek() == wanted;
    if (is_there) ++at_;
    return is_there;
  }

  std::string_view value() {
    const char first = peek();
    const size_t start = at_;
    if (first == '"') {
      skip_string();
    } else if (first == '{' || first == '[') {
      skip_nested();
    } else {
      at_ = std::min(text_.find_first_of(",]} \t\r\n", at_), text_.size());
    }
    return text_.substr(start, at_ - start);
  }

 private:
  void skip_string() {
    ++at_;
    while (at_ < text_.size() && text_[at_] != '"') at_ += text_[at_] == '\\' ? 2 : 1;
    at_ = std::min(at_ + 1, text_.size());
  }
  void skip_nested() {
    size_t depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        skip_string();
        continue;
      }
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      ++at_;
      if (depth == 0) return;
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

bool is_key(std::string_view quoted, std::string_view name) {
  if (quoted.find('\\') == std::string_view::npos) {
    return quoted.size() == name.size() + 2 && quoted.substr(1, name.size()) == name;
  }
  const auto key = nlohmann::json::parse(quoted, nullptr, false);
  return key.is_string() && key.get_ref<const std::string&>() == name;
}

std::optional<std::string_view> member(std::string_view object, std::string_view name) {
  Scanner scanner(object);
  std::optional<std::string_view> found;
  if (!scanner.take('{') || scanner.peek() == '}') return found;
  do {
    const std::string_view key = scanner.value();
    if (!scanner.take(':')) return found;
    const std::string_view value = scanner.value();
    if (is_key(key, name)) found = value;
  } while (scanner.take(','));
  return found;
}

std::optional<std::string_view> element(std::string_view list, std::string_view number) {
  size_t index = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), index);
  if (error != std::errc() || end != number.data() + number.size()) return std::nullopt;
  Scanner scanner(list);
  if (!scanner.take('[') || scanner.peek() == ']') return std::nullopt;
  do {
    const std::string_view value = scanner.value();
    if (index-- == 0) return value;
  } while (scanner.take(','));
  return std::nullopt;
}

}  // namespace

std::string_view raw_member(std::string_view object, std::string_view name) {
  return member(object, name).value_or(std::string_view());
}

std::vector<std::string_view> raw_items(std::string_view list) {
  Scanner scanner(list);
  std::vector<std::string_view> items;
  if (!scanner.take('[') || scanner.peek() == ']') return items;
  do {
    items.push_back(scanner.value());
  } while (scanner.take(','));
  return items;
}

std::string on_one_line(std::string_view json) {
  std::string line;
  line.reserve(json.size());
  bool is_in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    const char c = json[i];
    if (!is_in_string && kSpace.find(c) != std::string_view::npos) continue;
    line += c;
    if (c == '"') is_in_string = !is_in_string;
    if (is_in_string && c == '\\' && i + 1 < json.size()) line += json[++i];
    if (!is_in_string && (c == ',' || c == ':')) line += ' ';
  }
  return line;
}

std::optional<std::string_view> raw_json(std::string_view text, std::string_view pointer) {
  std::optional<std::string_view> value = Scanner(text).value();
  while (value && !pointer.empty()) {
    pointer.remove_prefix(1);
    const std::string_view name = pointer.substr(0, pointer.find('/'));
    pointer.remove_prefix(name.size());
    value = value->starts_with('[') ? element(*value, name) : member(*value, name);
  }
  return value;
}

}  // namespace shoal::server

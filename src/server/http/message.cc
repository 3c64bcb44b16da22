#include "server/http/message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <ctime>
#include <utility>

namespace shoal::server {
namespace {

char lower(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::optional<int> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char letter = lower(c);
  if (letter >= 'a' && letter <= 'f') return letter - 'a' + 10;
  return std::nullopt;
}

// As RFC 9110 wants it: "Mon, 30 Nov 2026 01:40:40 GMT".
std::string http_date(std::time_t now) {
  std::tm parts{};
  gmtime_r(&now, &parts);
  constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                  "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
                     kDays.at(static_cast<size_t>(parts.tm_wday)), parts.tm_mday,
                     kMonths.at(static_cast<size_t>(parts.tm_mon)), parts.tm_year + 1900,
                     parts.tm_hour, parts.tm_min, parts.tm_sec);
}

void add_header(std::string* text, std::string_view name, std::string_view value) {
  *text += name;
  *text += ": ";
  for (const char c : value) *text += c == '\r' || c == '\n' ? ' ' : c;
  *text += "\r\n";
}

}  // namespace

bool equals_ignoring_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

std::optional<std::string_view> find_header(const std::vector<Header>& headers,
                                            std::string_view name) {
  for (const Header& header : headers) {
    if (equals_ignoring_case(header.name, name)) return header.value;
  }
  return std::nullopt;
}

std::string_view reason_phrase(int status) {
  constexpr std::array<std::pair<int, std::string_view>, 19> kPhrases = {{
      {200, "OK"},
      {204, "No Content"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {408, "Request Timeout"},
      {411, "Length Required"},
      {413, "Content Too Large"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {422, "Unprocessable Content"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {503, "Service Unavailable"},
      {505, "HTTP Version Not Supported"},
  }};
  for (const auto& [number, phrase] : kPhrases) {
    if (number == status) return phrase;
  }
  return "Unknown";
}

std::optional<std::string> percent_decode(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      decoded += text[i];
      continue;
    }
    if (i + 2 >= text.size()) return std::nullopt;
    const auto high = hex_digit(text[i + 1]);
    const auto low = hex_digit(text[i + 2]);
    if (!high || !low) return std::nullopt;
    decoded += static_cast<char>(*high * 16 + *low);
    i += 2;
  }
  return decoded;
}

std::string format_head(const ResponseHead& head, const std::vector<Header>& headers) {
  std::string text = fmt::format("HTTP/1.1 {} {}\r\n", head.status, reason_phrase(head.status));
  add_header(&text, "Date", http_date(std::time(nullptr)));
  add_header(&text, "Server", "shoal");
  if (!head.content_type.empty()) add_header(&text, "Content-Type", head.content_type);
  if (head.content_length)
    add_header(&text, "Content-Length", std::to_string(*head.content_length));
  if (head.is_chunked) add_header(&text, "Transfer-Encoding", "chunked");
  add_header(&text, "Connection", head.keeps_alive ? "keep-alive" : "close");
  for (const Header& header : headers) add_header(&text, header.name, header.value);
  return text + "\r\n";
}

}  // namespace shoal::server

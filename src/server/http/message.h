// Request and Response: one HTTP exchange as routes see it, without sockets.
//
// Thread rule: values.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::server {

struct Header {
  std::string name;
  std::string value;
};

// The value of the first header of that name, whatever the case of its letters.
std::optional<std::string_view> find_header(const std::vector<Header>& headers,
                                            std::string_view name);
bool equals_ignoring_case(std::string_view a, std::string_view b);

struct Request {
  std::string method;  // "GET"
  std::string target;  // as it came: path and query
  std::vector<Header> headers;
  std::string body;
  // What stood in the place of the star of the route's pattern, percent-decoded.
  std::string tail{};

  std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
};

struct Response {
  int status = 200;
  std::string body{};
  std::string content_type = "application/json";
  std::vector<Header> headers{};  // beside those of the connection and of the body
};

// What is said before an answer that comes in pieces.
struct StreamHead {
  std::string content_type = "text/event-stream; charset=utf-8";
  // Sent when there was nothing to say for a while; empty: nothing is.
  std::string heartbeat = ": keep-alive\n\n";
};

// "Not Found"; "Unknown" for a number without a name.
std::string_view reason_phrase(int status);

// "%2F" becomes "/"; none where a percent sign is not followed by two hexadecimal digits.
std::optional<std::string> percent_decode(std::string_view text);

// The lines before a body. Line breaks in a value become spaces.
struct ResponseHead {
  int status = 200;
  std::string_view content_type;
  std::optional<size_t> content_length;  // none: in chunks, or up to the end of the connection
  bool is_chunked = false;
  bool keeps_alive = true;
};
std::string format_head(const ResponseHead& head, const std::vector<Header>& headers);

}  // namespace shoal::server

#include "server/http/router.h"

#include <fmt/format.h>

#include <utility>

namespace shoal::server {
namespace {

// What the star takes, percent-decoded; none where the path is another one.
std::optional<std::string> match_tail(std::string_view pattern, std::string_view path) {
  if (!pattern.ends_with("/*")) {
    return path == pattern ? std::optional<std::string>("") : std::nullopt;
  }
  pattern.remove_suffix(1);
  if (!path.starts_with(pattern) || path.size() == pattern.size()) return std::nullopt;
  return percent_decode(path.substr(pattern.size()));
}

}  // namespace

void Router::add(Route route) { routes_.push_back(std::move(route)); }

void Router::set_errors(std::string path, ErrorWriter write) {
  errors_.push_back({.path = std::move(path), .write = write});
}

ErrorWriter Router::errors_at(std::string_view path) const {
  for (const Errors& errors : errors_) {
    if (!path.starts_with(errors.path)) continue;
    const std::string_view rest = path.substr(errors.path.size());
    if (rest.empty() || rest.front() == '/') return errors.write;
  }
  return error_response;
}

Router::Match Router::find(std::string_view method, std::string_view path) const {
  const std::string_view wanted = method == "HEAD" ? "GET" : method;
  Match match;
  for (const Route& route : routes_) {
    const auto tail = match_tail(route.pattern, path);
    if (!tail) continue;
    if (route.method == wanted) {
      match.route = &route;
      match.tail = *tail;
      return match;
    }
    match.allowed += (match.allowed.empty() ? "" : ", ") + route.method;
  }
  if (match.allowed.empty()) {
    match.error = {.status = 404, .message = "there is nothing at this path", .code = "not_found"};
  } else {
    match.error = {.status = 405,
                   .message = fmt::format("this path takes {}", match.allowed),
                   .code = "method_not_allowed"};
  }
  return match;
}

}  // namespace shoal::server

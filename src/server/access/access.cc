#include "server/access/access.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <array>

namespace shoal::server {
namespace {

std::string_view trim(std::string_view text) {
  constexpr std::string_view kSpaces = " \t\r";
  const size_t first = text.find_first_not_of(kSpaces);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kSpaces) - first + 1);
}

std::string_view bearer_key(const std::vector<Header>& headers) {
  const auto authorization = find_header(headers, "authorization");
  if (!authorization) return {};
  constexpr std::string_view kBearer = "bearer ";
  const std::string_view value = trim(*authorization);
  if (value.size() < kBearer.size() ||
      !equals_ignoring_case(value.substr(0, kBearer.size()), kBearer)) {
    return {};
  }
  return trim(value.substr(kBearer.size()));
}

// Clients that have both a key and a token send both: either will do.
std::array<std::string_view, 2> given_keys(const std::vector<Header>& headers) {
  return {trim(find_header(headers, "x-api-key").value_or("")), bearer_key(headers)};
}

}  // namespace

ApiKeys::Digest ApiKeys::digest(std::string_view text) {
  Digest digest{};
  static_assert(std::tuple_size_v<Digest> == SHA256_DIGEST_LENGTH);
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

Result<ApiKeys> ApiKeys::parse(std::string_view text) {
  ApiKeys keys;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    if (line.size() < kKeyBytesMin) {
      return Status::request(
          fmt::format("line {}: a key needs at least {} characters, such as "
                      "those that `openssl rand -hex 32` prints",
                      number, kKeyBytesMin));
    }
    if (line.find_first_of(" \t") != std::string_view::npos) {
      return Status::request(fmt::format("line {}: a key has no spaces", number));
    }
    if (keys.size() == kKeysMax) {
      return Status::request(fmt::format("there are more than {} keys", kKeysMax));
    }
    keys.digests_.push_back(digest(line));
  }
  if (keys.digests_.empty()) {
    return Status::request(
        "there is no key in it; write one a line, such as those that "
        "`openssl rand -hex 32` prints");
  }
  return keys;
}

bool ApiKeys::contains(std::string_view key) const {
  const Digest given = digest(key);
  int found = 0;
  for (const Digest& known : digests_) {
    found |= CRYPTO_memcmp(known.data(), given.data(), given.size()) == 0 ? 1 : 0;
  }
  return found != 0;
}

bool Access::allows(std::string_view origin) const {
  return std::ranges::any_of(options_.origins, [&](const std::string& allowed) {
    return allowed == "*" || equals_ignoring_case(allowed, origin);
  });
}

std::optional<ApiError> Access::refuse(const std::vector<Header>& headers, bool needs_key) const {
  const auto origin = find_header(headers, "origin");
  if (origin && !allows(*origin)) {
    return ApiError{.status = 403,
                    .message =
                        "requests of web pages from this origin are not allowed; start the "
                        "server with --cors-origin and the page's origin",
                    .code = "origin_not_allowed"};
  }
  if (!needs_key || !options_.keys) return std::nullopt;
  bool has_key = false;
  bool is_known = false;
  for (const std::string_view key : given_keys(headers)) {
    if (key.empty()) continue;
    has_key = true;
    is_known |= options_.keys->contains(key);
  }
  if (is_known) return std::nullopt;
  return ApiError{.status = 401,
                  .message = !has_key ? "this server needs an API key, as Authorization: Bearer KEY"
                                      : "this API key is not one of this server's",
                  .type = "authentication_error",
                  .code = "invalid_api_key"};
}

Response Access::preflight(const std::vector<Header>& headers) const {
  Response response{.status = 204, .content_type = ""};
  response.headers.push_back({"Access-Control-Allow-Methods", "GET, POST, OPTIONS"});
  const auto wanted = find_header(headers, "access-control-request-headers");
  response.headers.push_back(
      {"Access-Control-Allow-Headers",
       wanted ? std::string(*wanted) : "authorization, content-type, x-api-key"});
  response.headers.push_back({"Access-Control-Max-Age", "600"});
  return response;
}

void Access::add_headers(const std::vector<Header>& request, std::vector<Header>* response) const {
  if (options_.origins.empty()) return;
  response->push_back({"Vary", "Origin"});
  const auto origin = find_header(request, "origin");
  if (origin && allows(*origin)) {
    response->push_back({"Access-Control-Allow-Origin", std::string(*origin)});
  }
}

}  // namespace shoal::server

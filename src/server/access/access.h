// Access: who may use the server: API keys, and web pages of other origins.
//
// Keys are kept and compared as SHA-256 digests, each one whole, in a time that does not depend on
// what is right about the key that was given. A browser says with Origin from which site a request
// comes: only those that were allowed get an answer, so that no web page uses a server on
// this machine behind its user's back. Programs send no Origin.
// Thread rule: immutable.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "server/api/error_response.h"
#include "server/http/message.h"

namespace shoal::server {

class ApiKeys {
 public:
  static constexpr size_t kKeyBytesMin = 8;
  static constexpr size_t kKeysMax = 10'000;

  // One key a line; empty lines and those that start with # are left out. kRequest, naming the
  // line but never the key, for one that is too short or has spaces; where there is none at all.
  static Result<ApiKeys> parse(std::string_view text);

  bool contains(std::string_view key) const;
  size_t size() const { return digests_.size(); }

 private:
  using Digest = std::array<uint8_t, 32>;
  static Digest digest(std::string_view text);
  std::vector<Digest> digests_;
};

struct AccessOptions {
  std::optional<ApiKeys> keys{};       // none: any request is let in
  std::vector<std::string> origins{};  // "https://example.org", or "*"
};

class Access {
 public:
  explicit Access(AccessOptions options) : options_(std::move(options)) {}

  // Why this request is not let in. The key comes as "Authorization: Bearer KEY" or "x-api-key".
  std::optional<ApiError> refuse(const std::vector<Header>& headers, bool needs_key) const;

  // The answer to a browser's question before the request (OPTIONS).
  Response preflight(const std::vector<Header>& headers) const;
  // What lets the page of an allowed origin read the answer.
  void add_headers(const std::vector<Header>& request, std::vector<Header>* response) const;

 private:
  bool allows(std::string_view origin) const;
  AccessOptions options_;
};

}  // namespace shoal::server

#include "server/api/error_response.h"

#include <nlohmann/json.hpp>

namespace shoal::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDrainingRetrySeconds = 5;

Json or_null(const std::optional<std::string>& text) { return text ? Json(*text) : Json(nullptr); }

}  // namespace

std::string error_json(const ApiError& error) {
  const Json json = {{"error",
                      {{"message", error.message},
                       {"type", error.type},
                       {"param", or_null(error.param)},
                       {"code", or_null(error.code)}}}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Response error_response(const ApiError& error) {
  Response response{.status = error.status, .body = error_json(error)};
  if (error.retry_after_seconds) {
    response.headers.push_back({"Retry-After", std::to_string(*error.retry_after_seconds)});
  }
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

ApiError shutting_down_error() {
  return {.status = 503,
          .message = "the server is shutting down",
          .type = "server_error",
          .code = "shutting_down",
          .retry_after_seconds = kDrainingRetrySeconds};
}

}  // namespace shoal::server

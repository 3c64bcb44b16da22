// error_response: an error in the shape that OpenAI's clients read.
//
//   {"error": {"message": ..., "type": ..., "param": ..., "code": ...}}
// Other APIs have other shapes: an ErrorWriter each, which Router knows by their paths.
// Thread rule: pure functions.
#pragma once

#include <optional>
#include <string>

#include "server/http/message.h"

namespace shoal::server {

struct ApiError {
  int status = 400;
  std::string message{};
  std::string type = "invalid_request_error";
  std::optional<std::string> param{};  // the field at fault
  std::optional<std::string> code{};   // for programs, such as "model_not_found"
  std::optional<int> retry_after_seconds{};
};

// {"error": ...} without the response around it.
std::string error_json(const ApiError& error);
Response error_response(const ApiError& error);

// How an API writes its errors.
using ErrorWriter = Response (*)(const ApiError& error);

// 503 of a server that only lets answers under way end.
ApiError shutting_down_error();

}  // namespace shoal::server

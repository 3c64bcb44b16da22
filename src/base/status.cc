#include "base/status.h"

#include <cstdio>
#include <cstdlib>
#include <system_error>

namespace shoal {

void check_failed(const char* file, int line, const char* condition, const char* detail) {
  std::fprintf(stderr, "%s:%d: CHECK failed: %s%s%s\n", file, line, condition,
               detail == nullptr ? "" : ": ", detail == nullptr ? "" : detail);
  std::abort();
}

std::string_view status_code_name(StatusCode code) {
  switch (code) {
    case StatusCode::kOk:
      return "ok";
    case StatusCode::kRequest:
      return "request";
    case StatusCode::kBusy:
      return "busy";
    case StatusCode::kGroup:
      return "group";
    case StatusCode::kNode:
      return "node";
  }
  CHECK_MSG(false, "unknown StatusCode");
}

Status Status::from_errno(std::string_view what, int errno_value) {
  return node(std::string(what) + ": " + std::generic_category().message(errno_value));
}

std::string Status::to_string() const {
  if (is_ok()) return "ok";
  return std::string(status_code_name(code_)) + ": " + message_;
}

Status Status::with_context(std::string_view context) const {
  if (is_ok()) return *this;
  return {code_, std::string(context) + ": " + message_};
}

}  // namespace shoal

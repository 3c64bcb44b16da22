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

Status::Status(StatusCode code, std::string message) {
  if (code == StatusCode::kOk) return;
  failure_ = std::make_unique<const Failure>(Failure{code, std::move(message)});
}

std::unique_ptr<const Status::Failure> Status::copy_of_failure() const {
  return std::make_unique<const Failure>(*failure_);
}

const std::string& Status::message() const {
  static const std::string none;
  return is_ok() ? none : failure_->message;
}

std::string Status::to_string() const {
  if (is_ok()) return "ok";
  return std::string(status_code_name(code())) + ": " + message();
}

Status Status::with_context(std::string_view context) const {
  if (is_ok()) return *this;
  return {code(), std::string(context) + ": " + message()};
}

}  // namespace shoal

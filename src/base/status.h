// Status and Result<T>: failures of the world (files, peers, requests, memory) as values.
//
// A code says how much is broken, so that a caller knows what to rebuild; the message says what
// happened and what to do. Our own bugs are not statuses: they are CHECKs (base/check.h). Whoever
// detects a failure first logs it, callers only add context. Nothing in Shoal throws.
// An ok Status is one null pointer: on data paths every call returns one. Moved from, it is ok.
// Thread rule: values, no sharing.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"

namespace shoal {

// How much is broken.
enum class StatusCode {
  kOk,
  kRequest,  // this request or file: bad input, limits, not found; everything else goes on
  kBusy,     // nothing is broken, try later
  kGroup,    // the group of ranks: a peer died or broke the protocol; a new epoch is needed
  kNode,     // this node: out of memory, threads, descriptors
};

std::string_view status_code_name(StatusCode code);

class [[nodiscard]] Status {
 public:
  Status() = default;  // ok
  Status(const Status& other) : failure_(copy_of(other)) {}
  Status(Status&&) noexcept = default;
  Status& operator=(const Status& other) {
    failure_ = copy_of(other);
    return *this;
  }
  Status& operator=(Status&&) noexcept = default;

  static Status ok() { return {}; }
  static Status request(std::string message) { return {StatusCode::kRequest, std::move(message)}; }
  static Status busy(std::string message) { return {StatusCode::kBusy, std::move(message)}; }
  static Status group(std::string message) { return {StatusCode::kGroup, std::move(message)}; }
  static Status node(std::string message) { return {StatusCode::kNode, std::move(message)}; }
  // A kNode status "what: strerror(errno)"; errno_value is taken at the failed call.
  static Status from_errno(std::string_view what, int errno_value);

  // The message of an ok one is lost.
  Status(StatusCode code, std::string message);

  bool is_ok() const { return failure_ == nullptr; }
  StatusCode code() const { return is_ok() ? StatusCode::kOk : failure_->code; }
  // Empty when ok.
  const std::string& message() const;
  // "<code>: <message>", or "ok".
  std::string to_string() const;
  // The same code, with "context: " before the message. Ok stays ok.
  Status with_context(std::string_view context) const;

 private:
  struct Failure {
    StatusCode code;
    std::string message;
  };
  static std::unique_ptr<const Failure> copy_of(const Status& other) {
    return other.is_ok() ? nullptr : other.copy_of_failure();
  }
  std::unique_ptr<const Failure> copy_of_failure() const;

  std::unique_ptr<const Failure> failure_;  // null: ok
};

// A T or the Status that says why there is none. Never holds an ok Status without a T.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT(google-explicit-constructor)
  Result(Status status) : status_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    CHECK(!status_.is_ok());
  }

  bool is_ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // CHECK-fails on an error: test is_ok() first, or use ASSIGN_OR_RETURN.
  T& value() & {
    CHECK_MSG(is_ok(), status_.message().c_str());
    return *value_;
  }
  const T& value() const& {
    CHECK_MSG(is_ok(), status_.message().c_str());
    return *value_;
  }
  T&& value() && {
    CHECK_MSG(is_ok(), status_.message().c_str());
    return std::move(*value_);
  }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::optional<T> value_;
  Status status_;
};

}  // namespace shoal

#define SHOAL_CONCAT_INNER(a, b) a##b
#define SHOAL_CONCAT(a, b) SHOAL_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expr)                                           \
  do {                                                                  \
    if (::shoal::Status shoal_status = (expr); !shoal_status.is_ok()) { \
      return shoal_status;                                              \
    }                                                                   \
  } while (false)

// ASSIGN_OR_RETURN(auto x, f()): x = f()'s value, or return its status.
#define ASSIGN_OR_RETURN(lhs, expr) \
  SHOAL_ASSIGN_OR_RETURN(SHOAL_CONCAT(shoal_result_, __LINE__), lhs, expr)
#define SHOAL_ASSIGN_OR_RETURN(tmp, lhs, expr) \
  auto tmp = (expr);                           \
  if (!tmp.is_ok()) return tmp.status();       \
  lhs = std::move(tmp).value()

// Conversions between our types and the C interface of rust/; for the sources of this folder only.
//
// Thread rule: stateless.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "text/rust/shoal_text.h"

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHOAL_TEXT_THREAD_SANITIZER
#endif
#endif

#ifdef SHOAL_TEXT_THREAD_SANITIZER
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace shoal::text {

// Around a call into Rust that many threads may make at once. The thread sanitizer sees its heap
// and copies but not its locks, and would take what they guard for a race; Rust rules races out
// itself.
class RustCall {
 public:
#ifdef SHOAL_TEXT_THREAD_SANITIZER
  RustCall() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~RustCall() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  RustCall() {}   // NOLINT(modernize-use-equals-default): not trivial, so never unused
  ~RustCall() {}  // NOLINT(modernize-use-equals-default)
#endif
  RustCall(const RustCall&) = delete;
  RustCall& operator=(const RustCall&) = delete;
};

inline ShoalText borrow(std::string_view text) {
  // A null pointer means "not given", which an empty text is not.
  return {text.data() == nullptr ? "" : text.data(), text.size()};
}

inline ShoalText borrow_some(const std::optional<std::string>& text) {
  return text.has_value() ? borrow(std::string_view(*text)) : ShoalText{nullptr, 0};
}

inline std::string_view view(ShoalText text) { return {text.data, text.size}; }

inline int8_t switch_of(std::optional<bool> value) {
  return static_cast<int8_t>(value.has_value() ? (*value ? 1 : 0) : -1);
}

// Copies the buffer and gives it back.
inline std::string take(ShoalBuffer buffer) {
  std::string text(buffer.data, buffer.size);
  shoal_buffer_free(buffer);
  return text;
}

// The status of a call that failed with this code; takes the error.
inline Status failure(int code, ShoalBuffer error) {
  std::string message = take(error);
  CHECK(code != SHOAL_TEXT_OK);
  // A panic is our bug, and yet this request is all that is lost: nothing behind the boundary is
  // shared or changed by a call.
  if (code == SHOAL_TEXT_BUG) message.insert(0, "internal error in the text library: ");
  return Status::request(std::move(message));
}

}  // namespace shoal::text

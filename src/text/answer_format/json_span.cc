#include "text/answer_format/json_span.h"

namespace shoal::text {

JsonSpan::State JsonSpan::push(char c) {
  if (is_in_string_) {
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (c == '\\') {
      is_escaped_ = true;
    } else if (c == '"') {
      is_in_string_ = false;
      if (closers_.empty()) return State::kDone;
    }
    return State::kMore;
  }
  if (c == '"') {
    is_in_string_ = true;
  } else if (c == '{' || c == '[') {
    closers_ += c == '{' ? '}' : ']';
  } else if (closers_.empty()) {
    return State::kBroken;
  } else if (c == '}' || c == ']') {
    if (closers_.back() != c) return State::kBroken;
    closers_.pop_back();
    if (closers_.empty()) return State::kDone;
  }
  return State::kMore;
}

}  // namespace shoal::text

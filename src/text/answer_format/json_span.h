// JsonSpan: where a JSON object, list or string ends, byte by byte.
//
// Looks at quotes and brackets only. Thread rule: one thread at a time.
#pragma once

#include <string>

namespace shoal::text {

// Finds the end of an object, a list or a string that begins with the first byte pushed.
class JsonSpan {
 public:
  enum class State { kMore, kDone, kBroken };
  State push(char c);

 private:
  std::string closers_;  // of the brackets that are open
  bool is_in_string_ = false;
  bool is_escaped_ = false;
};

}  // namespace shoal::text

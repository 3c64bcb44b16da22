// JsonCall and JsonArguments: the JSON of a call, read as it comes.
//
// Both keep what they take in the writer. Where brackets do not match they say so at once; whether
// the rest is JSON is found at the end of the call.
// Thread rule: one thread at a time. Borrow the writer.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "text/answer_format/event_writer.h"
#include "text/answer_format/json_span.h"

namespace shoal::text {

enum class JsonProgress { kMore, kDone, kBroken };
struct JsonRead {
  JsonProgress progress = JsonProgress::kMore;
  size_t bytes = 0;  // taken from the text's front
};

// {...}: the arguments of a call that was begun; gives them to the writer, and ends the call.
class JsonArguments {
 public:
  explicit JsonArguments(EventWriter& writer) : writer_(writer) {}
  // kDone: the call was ended as one. kBroken: what was kept is the caller's to give up, unless
  // the writer has done so.
  JsonRead read(std::string_view text);

 private:
  EventWriter& writer_;
  JsonSpan span_;
  bool has_begun_ = false;
};

// {"name": NAME, "arguments": {...}}, keys in any order; "parameters" means "arguments", which may
// be a string of JSON too, and absent where there are none. Begins the call and ends it.
class JsonCall {
 public:
  explicit JsonCall(EventWriter& writer) : writer_(writer) {}
  // As JsonArguments::read. kBroken too where the function may not be called.
  JsonRead read(std::string_view text);

 private:
  enum class State { kOpen, kKeyOrEnd, kKey, kColon, kValue, kSpan, kScalar, kCommaOrEnd };
  enum class Field { kOther, kName, kObjectArguments, kTextArguments };
  // False: broken.
  bool step(char c);
  bool begin_key(char c);
  bool end_key();
  bool begin_value(char c);
  bool push_value(char c);
  bool end_value();
  void flush();

  EventWriter& writer_;
  State state_ = State::kOpen;
  Field field_ = Field::kOther;
  JsonSpan span_;
  std::string key_;
  std::string value_;     // of a field that is needed whole
  std::string fragment_;  // of arguments, not given yet
  bool has_name_ = false;
  bool has_arguments_ = false;
  bool has_ended_ = false;
};

}  // namespace shoal::text

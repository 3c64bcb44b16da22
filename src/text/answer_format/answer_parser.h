// AnswerParser: an answer's text as it comes, taken apart into content, thoughts and calls.
//
// How the text was cut into pieces changes how the events are cut, and nothing else. No part of a
// mark is ever given as content, unless the text turns out to be no mark. What looks like a call
// and is none (no JSON, a function that is not offered) is given as content, byte by byte.
// Thread rule: one thread at a time; a parser serves one answer.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace shoal::text {

// A piece of an answer by what it is.
struct AnswerEvent {
  // A call is one kCallBegin, any number of kCallArguments, one kCallEnd.
  enum class Kind {
    kContent,        // text for the reader
    kReasoning,      // text that the model thought before it answered
    kCallBegin,      // text: the function's name
    kCallArguments,  // text: a fragment of a JSON object
    kCallEnd,
  };
  Kind kind = Kind::kContent;
  std::string text{};

  bool operator==(const AnswerEvent&) const = default;
};

using AnswerEvents = std::vector<AnswerEvent>;

// Appends text to the last event where that is of this kind, else an event.
inline void append_event(AnswerEvent::Kind kind, std::string_view text, AnswerEvents* events) {
  if (text.empty()) return;
  if (!events->empty() && events->back().kind == kind) {
    events->back().text += text;
  } else {
    events->push_back({.kind = kind, .text = std::string(text)});
  }
}

class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  // The text that follows; appends what is certain now.
  virtual void push(std::string_view text, AnswerEvents* events) = 0;
  // The end of the answer: what was held back. A call that has begun is ended.
  virtual void finish(AnswerEvents* events) = 0;
};

struct AnswerParserOptions {
  // What may be called; none: calls are not looked for.
  std::set<std::string, std::less<>> functions{};
  // A grammar binds the calls that begin as the format has it, so their arguments are given as they
  // come. All others are held until they are whole and their arguments are known to be a JSON
  // object.
  bool are_calls_bound = false;
  // The prompt has opened a thought already.
  bool starts_in_thought = false;
};

}  // namespace shoal::text

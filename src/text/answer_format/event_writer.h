// EventWriter: what all parsers give their events through.
//
// Content: white space next to a call is left out. A call: kept as the model wrote it until it is
// known to be one, so that it can become content. Thread rule: one thread at a time.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "text/answer_format/answer_parser.h"

namespace shoal::text {

inline constexpr std::string_view kWhiteSpace = " \t\r\n";

// Whether a call begins with what a grammar's trigger is, or otherwise, as parsers let pass.
enum class CallOpening { kAsTriggered, kOther };

class EventWriter {
 public:
  explicit EventWriter(AnswerParserOptions options) : options_(std::move(options)) {}

  // Where the events of the calls that follow go; borrowed until the next one.
  void set_events(AnswerEvents* events) { events_ = events; }

  void content(std::string_view text);
  void reasoning(std::string_view text);
  // The end of the answer.
  void finish();

  bool may_call(std::string_view function) const { return options_.functions.contains(function); }
  // Text that is perhaps a call begins; whatever was kept before is forgotten.
  void open(CallOpening opening);
  bool is_open() const { return is_open_; }
  // What was read since, mark by mark and byte by byte.
  void keep(std::string_view raw);
  void begin_call(std::string_view function);
  void arguments(std::string_view text);
  // The call is whole. False: its arguments are no JSON object, and it was given as content.
  bool end_call();
  // It is no call: what was kept is content. Ends one that was begun.
  void give_up();
  // What was kept is neither.
  void close();

 private:
  void emit(AnswerEvent::Kind kind, std::string_view text);

  const AnswerParserOptions options_;
  AnswerEvents* events_ = nullptr;
  std::string white_space_;  // at the end of the content so far
  bool is_after_call_ = false;
  bool is_open_ = false;
  bool is_certain_ = false;  // a grammar binds the call that is open
  bool has_begun_ = false;
  std::string raw_;
  std::string function_;
  std::string arguments_;
};

}  // namespace shoal::text

// CallParser: the part that the parsers of all formats share: text that waits, marks found in it.
//
// A format is a state machine over rest(): each step takes something from its front or changes the
// state; a step that can do neither waits for more text.
// Thread rule: as AnswerParser.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "text/answer_format/event_writer.h"
#include "text/answer_format/json_call.h"

namespace shoal::text {

// The place of the first mark in a text. Without one: where at its end a mark may have begun, or
// its size.
struct MarkPlace {
  size_t position = 0;
  std::optional<std::string_view> mark{};
};
MarkPlace find_mark(std::string_view text, std::initializer_list<std::string_view> marks);

// How a text begins.
enum class Beginning { kOther, kPerhaps, kMark };
Beginning beginning(std::string_view text, std::string_view mark);

std::string_view trim(std::string_view text);

class CallParser : public AnswerParser {
 public:
  void push(std::string_view text, AnswerEvents* events) final;
  void finish(AnswerEvents* events) final;

 protected:
  // Names and the like are no longer than this; what is longer is no call.
  static constexpr size_t kHeadBytesMax = 512;

  explicit CallParser(AnswerParserOptions options) : writer_(std::move(options)) {}

  // True where it did something.
  virtual bool step() = 0;
  // The answer has ended; what is left of it is content by default, or of a call that is none.
  virtual void end();

  std::string_view rest() const { return std::string_view(text_).substr(begin_); }
  // Takes from the front: to be kept of a call, or not at all.
  void keep(size_t bytes);
  void skip(size_t bytes) { begin_ += bytes; }
  // White space at the front, kept; false where nothing is behind it yet.
  bool keep_white_space();
  // Content up to the first mark; the mark, which stays at the front, once it is whole.
  std::optional<std::string_view> content_up_to(std::initializer_list<std::string_view> marks);
  // Content up to the mark; once that is whole, opens what may be a call, the mark kept of it.
  bool open_at(std::string_view mark, CallOpening opening);
  // Takes what was read of a call's JSON and gives up where it is broken.
  JsonProgress take(const JsonRead& read);
  EventWriter& writer() { return writer_; }

 private:
  EventWriter writer_;
  std::string text_;
  size_t begin_ = 0;
};

}  // namespace shoal::text

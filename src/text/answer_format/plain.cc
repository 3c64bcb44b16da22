// The parsers that look for no calls: all content, and a thought before something else.
#include <algorithm>
#include <utility>

#include "text/answer_format/call_parser.h"
#include "text/answer_format/parsers.h"

namespace shoal::text {
namespace {

class PlainParser final : public AnswerParser {
 public:
  void push(std::string_view text, AnswerEvents* events) override {
    append_event(AnswerEvent::Kind::kContent, text, events);
  }
  void finish(AnswerEvents*) override {}
};

class ThoughtParser final : public AnswerParser {
 public:
  ThoughtParser(ThoughtMarks marks, bool starts_in_thought, std::unique_ptr<AnswerParser> rest)
      : marks_(marks),
        rest_(std::move(rest)),
        state_(starts_in_thought ? State::kBeforeThought : State::kStart) {}

  void push(std::string_view text, AnswerEvents* events) override {
    if (state_ == State::kRest) {
      rest_->push(text, events);
      return;
    }
    held_ += text;
    while (step(events)) {
    }
  }

  // A thought without an end keeps what might have begun its mark.
  void finish(AnswerEvents* events) override {
    if (state_ == State::kStart) rest_->push(held_, events);
    if (state_ == State::kThought) {
      append_event(AnswerEvent::Kind::kReasoning, trim_end(held_), events);
    }
    held_.clear();
    rest_->finish(events);
  }

 private:
  enum class State { kStart, kBeforeThought, kThought, kAfterThought, kRest };

  // The first byte that is no white space; all before it is dropped.
  bool drop_white_space() {
    held_.erase(0, std::min(held_.find_first_not_of(kWhiteSpace), held_.size()));
    return !held_.empty();
  }

  bool step(AnswerEvents* events) {
    switch (state_) {
      case State::kStart:
        return start();
      case State::kBeforeThought:
        if (!drop_white_space()) return false;
        state_ = State::kThought;
        return true;
      case State::kThought:
        return think(events);
      case State::kAfterThought:
        if (!drop_white_space()) return false;
        state_ = State::kRest;
        return true;
      case State::kRest:
        rest_->push(held_, events);
        held_.clear();
        return false;
    }
    return false;
  }

  bool start() {
    const size_t begin = held_.find_first_not_of(kWhiteSpace);
    if (begin == std::string::npos) return false;
    const Beginning found = beginning(std::string_view(held_).substr(begin), marks_.open);
    if (found == Beginning::kPerhaps) return false;
    if (found == Beginning::kMark) held_.erase(0, begin + marks_.open.size());
    state_ = found == Beginning::kMark ? State::kBeforeThought : State::kRest;
    return true;
  }

  // White space before the mark is no part of the thought, so it waits as the mark does.
  bool think(AnswerEvents* events) {
    const MarkPlace place = find_mark(held_, {marks_.close});
    const std::string_view sure = trim_end(std::string_view(held_).substr(0, place.position));
    append_event(AnswerEvent::Kind::kReasoning, sure, events);
    held_.erase(0, place.mark ? place.position + marks_.close.size() : sure.size());
    if (place.mark) state_ = State::kAfterThought;
    return place.mark.has_value();
  }

  static std::string_view trim_end(std::string_view text) {
    const size_t last = text.find_last_not_of(kWhiteSpace);
    return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  }

  const ThoughtMarks marks_;
  const std::unique_ptr<AnswerParser> rest_;
  State state_;
  std::string held_;
};

}  // namespace

std::unique_ptr<AnswerParser> make_plain_parser() { return std::make_unique<PlainParser>(); }

std::unique_ptr<AnswerParser> make_thought_parser(ThoughtMarks marks, bool starts_in_thought,
                                                  std::unique_ptr<AnswerParser> rest) {
  return std::make_unique<ThoughtParser>(marks, starts_in_thought, std::move(rest));
}

}  // namespace shoal::text

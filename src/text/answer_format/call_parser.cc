#include "text/answer_format/call_parser.h"

namespace shoal::text {

Beginning beginning(std::string_view text, std::string_view mark) {
  if (text.starts_with(mark)) return Beginning::kMark;
  return mark.starts_with(text) ? Beginning::kPerhaps : Beginning::kOther;
}

MarkPlace find_mark(std::string_view text, std::initializer_list<std::string_view> marks) {
  for (size_t i = 0; i < text.size(); ++i) {
    for (const std::string_view mark : marks) {
      if (text[i] != mark.front()) continue;
      const Beginning found = beginning(text.substr(i), mark);
      if (found == Beginning::kMark) return {.position = i, .mark = mark};
      if (found == Beginning::kPerhaps) return {.position = i};
    }
  }
  return {.position = text.size()};
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(kWhiteSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kWhiteSpace) - begin + 1);
}

void CallParser::push(std::string_view text, AnswerEvents* events) {
  writer_.set_events(events);
  text_ += text;
  while (step()) {
  }
  text_.erase(0, begin_);
  begin_ = 0;
}

void CallParser::finish(AnswerEvents* events) {
  writer_.set_events(events);
  end();
  text_.clear();
  begin_ = 0;
  writer_.finish();
}

void CallParser::end() {
  if (writer_.is_open()) {
    writer_.keep(rest());
  } else {
    writer_.content(rest());
  }
}

void CallParser::keep(size_t bytes) {
  writer_.keep(rest().substr(0, bytes));
  skip(bytes);
}

bool CallParser::keep_white_space() {
  const size_t bytes = rest().find_first_not_of(kWhiteSpace);
  keep(bytes == std::string_view::npos ? rest().size() : bytes);
  return !rest().empty();
}

std::optional<std::string_view> CallParser::content_up_to(
    std::initializer_list<std::string_view> marks) {
  const MarkPlace place = find_mark(rest(), marks);
  writer_.content(rest().substr(0, place.position));
  skip(place.position);
  return place.mark;
}

bool CallParser::open_at(std::string_view mark, CallOpening opening) {
  if (!content_up_to({mark})) return false;
  writer_.open(opening);
  keep(mark.size());
  return true;
}

JsonProgress CallParser::take(const JsonRead& read) {
  skip(read.bytes);
  if (read.progress == JsonProgress::kBroken) writer_.give_up();
  return read.progress;
}

}  // namespace shoal::text

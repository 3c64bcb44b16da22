#include "text/answer_format/event_writer.h"

#include <nlohmann/json.hpp>

namespace shoal::text {
namespace {

bool is_object(std::string_view text) {
  // Accepting builds nothing, and only an object begins with a brace.
  return text.starts_with('{') && nlohmann::json::accept(text);
}

}  // namespace

void EventWriter::emit(AnswerEvent::Kind kind, std::string_view text) {
  append_event(kind, text, events_);
}

void EventWriter::content(std::string_view text) {
  if (is_after_call_) {
    const size_t begin = text.find_first_not_of(kWhiteSpace);
    if (begin == std::string_view::npos) return;
    text.remove_prefix(begin);
    is_after_call_ = false;
  }
  const size_t last = text.find_last_not_of(kWhiteSpace);
  if (last == std::string_view::npos) {
    white_space_ += text;
    return;
  }
  emit(AnswerEvent::Kind::kContent, white_space_);
  emit(AnswerEvent::Kind::kContent, text.substr(0, last + 1));
  white_space_ = text.substr(last + 1);
}

void EventWriter::reasoning(std::string_view text) { emit(AnswerEvent::Kind::kReasoning, text); }

void EventWriter::finish() {
  give_up();
  emit(AnswerEvent::Kind::kContent, white_space_);
  white_space_.clear();
}

void EventWriter::open(CallOpening opening) {
  close();
  is_open_ = true;
  is_certain_ = options_.are_calls_bound && opening == CallOpening::kAsTriggered;
}

void EventWriter::keep(std::string_view raw) {
  // What was given as it came needs no keeping.
  if (is_open_ && !(has_begun_ && is_certain_)) raw_ += raw;
}

void EventWriter::begin_call(std::string_view function) {
  has_begun_ = true;
  function_ = function;
  if (!is_certain_) return;
  white_space_.clear();
  events_->push_back({.kind = AnswerEvent::Kind::kCallBegin, .text = function_});
}

void EventWriter::arguments(std::string_view text) {
  if (is_certain_) {
    emit(AnswerEvent::Kind::kCallArguments, text);
  } else {
    arguments_ += text;
  }
}

bool EventWriter::end_call() {
  if (!is_certain_) {
    if (!is_object(arguments_)) {
      give_up();
      return false;
    }
    white_space_.clear();
    events_->push_back({.kind = AnswerEvent::Kind::kCallBegin, .text = function_});
    emit(AnswerEvent::Kind::kCallArguments, arguments_);
  }
  events_->push_back({.kind = AnswerEvent::Kind::kCallEnd, .text = {}});
  is_after_call_ = true;
  close();
  return true;
}

void EventWriter::give_up() {
  if (!is_open_) return;
  if (has_begun_ && is_certain_) {
    events_->push_back({.kind = AnswerEvent::Kind::kCallEnd, .text = {}});
    is_after_call_ = true;
  } else {
    content(raw_);
  }
  close();
}

void EventWriter::close() {
  is_open_ = false;
  has_begun_ = false;
  raw_.clear();
  function_.clear();
  arguments_.clear();
}

}  // namespace shoal::text

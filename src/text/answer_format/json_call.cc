#include "text/answer_format/json_call.h"

#include <nlohmann/json.hpp>
#include <optional>

namespace shoal::text {
namespace {

bool is_white(char c) { return kWhiteSpace.find(c) != std::string_view::npos; }

// A JSON string with its quotes.
std::optional<std::string> decode(const std::string& quoted) {
  const auto json = nlohmann::json::parse(quoted, nullptr, false);
  const std::string* text = json.get_ptr<const std::string*>();
  return text == nullptr ? std::nullopt : std::optional(*text);
}

}  // namespace

JsonRead JsonArguments::read(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const bool is_object = has_begun_ || text[i] == '{';
    has_begun_ = true;
    const JsonSpan::State state = is_object ? span_.push(text[i]) : JsonSpan::State::kBroken;
    if (state == JsonSpan::State::kMore) continue;
    const size_t bytes = state == JsonSpan::State::kDone ? i + 1 : i;
    writer_.keep(text.substr(0, bytes));
    writer_.arguments(text.substr(0, bytes));
    const bool is_call = state == JsonSpan::State::kDone && writer_.end_call();
    return {.progress = is_call ? JsonProgress::kDone : JsonProgress::kBroken, .bytes = bytes};
  }
  writer_.keep(text);
  writer_.arguments(text);
  return {.progress = JsonProgress::kMore, .bytes = text.size()};
}

JsonRead JsonCall::read(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (!step(text[i])) {
      writer_.keep(text.substr(0, i));
      flush();
      return {.progress = JsonProgress::kBroken, .bytes = i};
    }
    if (!has_ended_) continue;
    writer_.keep(text.substr(0, i + 1));
    flush();
    const bool is_call = writer_.end_call();
    return {.progress = is_call ? JsonProgress::kDone : JsonProgress::kBroken, .bytes = i + 1};
  }
  writer_.keep(text);
  flush();
  return {.progress = JsonProgress::kMore, .bytes = text.size()};
}

void JsonCall::flush() {
  if (!has_name_ || fragment_.empty()) return;
  writer_.arguments(fragment_);
  fragment_.clear();
}

bool JsonCall::step(char c) {
  switch (state_) {
    case State::kOpen:
      state_ = State::kKeyOrEnd;
      return c == '{';
    case State::kKeyOrEnd:
      return is_white(c) || begin_key(c);
    case State::kKey:
      key_ += c;
      return span_.push(c) != JsonSpan::State::kDone || end_key();
    case State::kColon:
      if (is_white(c)) return true;
      state_ = State::kValue;
      return c == ':';
    case State::kValue:
      return is_white(c) || begin_value(c);
    case State::kSpan:
      return push_value(c);
    case State::kScalar:
      if (c != ',' && c != '}' && !is_white(c)) return true;
      state_ = State::kCommaOrEnd;
      return step(c);
    case State::kCommaOrEnd:
      if (c == '}') return begin_key(c);
      if (c == ',') state_ = State::kKeyOrEnd;
      return c == ',' || is_white(c);
  }
  return false;
}

// A key, or the end of the object.
bool JsonCall::begin_key(char c) {
  if (c == '}') {
    if (!has_name_) return false;
    if (!has_arguments_) fragment_ = "{}";
    has_ended_ = true;
    return true;
  }
  if (c != '"') return false;
  key_ = c;
  span_ = JsonSpan();
  (void)span_.push(c);
  state_ = State::kKey;
  return true;
}

// Before the name is known an object with other keys than a call's is taken for an answer in JSON.
bool JsonCall::end_key() {
  state_ = State::kColon;
  field_ = Field::kOther;
  if (key_ == R"("name")") {
    if (!has_name_) field_ = Field::kName;
    return true;
  }
  if (key_ == R"("arguments")" || key_ == R"("parameters")") {
    if (!has_arguments_) field_ = Field::kObjectArguments;
    return true;
  }
  return has_name_ || key_ == R"("type")" || key_ == R"("id")";
}

bool JsonCall::begin_value(char c) {
  const bool is_span = c == '{' || c == '[' || c == '"';
  if (field_ == Field::kName && c != '"') return false;
  if (field_ == Field::kObjectArguments) {
    if (c != '{' && c != '"' && c != 'n') return false;
    if (c == '"') field_ = Field::kTextArguments;
    if (c == 'n') field_ = Field::kOther;  // null: none
    has_arguments_ = c != 'n';
  }
  span_ = JsonSpan();
  value_.clear();
  state_ = is_span ? State::kSpan : State::kScalar;
  return is_span ? push_value(c) : c != ',' && c != '}' && c != ':';
}

bool JsonCall::push_value(char c) {
  if (field_ == Field::kObjectArguments) {
    fragment_ += c;
  } else if (field_ != Field::kOther) {
    value_ += c;
  }
  const JsonSpan::State state = span_.push(c);
  if (state != JsonSpan::State::kDone) return state == JsonSpan::State::kMore;
  state_ = State::kCommaOrEnd;
  return end_value();
}

bool JsonCall::end_value() {
  if (field_ == Field::kName) {
    const auto name = decode(value_);
    if (!name || !writer_.may_call(*name)) return false;
    has_name_ = true;
    writer_.begin_call(*name);
  } else if (field_ == Field::kTextArguments) {
    const auto arguments = decode(value_);
    if (!arguments) return false;
    fragment_ = *arguments;
  }
  return true;
}

}  // namespace shoal::text

// Llama 3.1 to 3.3: an answer that is {"name": NAME, "parameters": {...}}, after <|python_tag|> or
// alone, several of them separated by semicolons; as Meta's model cards and templates have it.
#include <optional>

#include "text/answer_format/answer_format.h"
#include "text/answer_format/call_parser.h"
#include "text/answer_format/json_call.h"
#include "text/answer_format/parsers.h"

namespace shoal::text {
namespace {

class Llama3Parser final : public CallParser {
 public:
  explicit Llama3Parser(AnswerParserOptions options) : CallParser(std::move(options)) {}

 private:
  enum class State { kStart, kContent, kTagged, kCall, kAfter };

  bool step() override {
    switch (state_) {
      case State::kStart:
        return start();
      case State::kContent:
        if (!open_at(Llama3Marks::kPythonTag, CallOpening::kOther)) return false;
        state_ = State::kTagged;
        return true;
      case State::kTagged:
        // What the tag begins without JSON is a program for tools of Meta's own.
        if (!keep_white_space()) return false;
        begin_call();
        return true;
      case State::kCall:
        return read_call();
      case State::kAfter:
        return go_on();
    }
    return false;
  }

  // Only an answer that begins with JSON is a call without the tag.
  bool start() {
    const size_t begin = rest().find_first_not_of(kWhiteSpace);
    if (begin == std::string_view::npos) return false;
    writer().content(rest().substr(0, begin));
    skip(begin);
    if (rest().front() == '{') {
      writer().open(CallOpening::kAsTriggered);
      begin_call();
    } else {
      state_ = State::kContent;
    }
    return true;
  }

  void begin_call() {
    call_.emplace(writer());
    state_ = State::kCall;
  }

  bool read_call() {
    const JsonProgress progress = take(call_->read(rest()));
    if (progress == JsonProgress::kMore) return false;
    state_ = progress == JsonProgress::kDone ? State::kAfter : State::kContent;
    return true;
  }

  bool go_on() {
    const size_t begin = rest().find_first_not_of(" \t\r\n;");
    if (begin == std::string_view::npos) return false;
    if (rest()[begin] == '{') {
      writer().open(CallOpening::kAsTriggered);
      keep(begin);
      begin_call();
    } else {
      state_ = State::kContent;
    }
    return true;
  }

  State state_ = State::kStart;
  std::optional<JsonCall> call_;
};

}  // namespace

std::unique_ptr<AnswerParser> make_llama3_parser(AnswerParserOptions options) {
  return std::make_unique<Llama3Parser>(std::move(options));
}

}  // namespace shoal::text

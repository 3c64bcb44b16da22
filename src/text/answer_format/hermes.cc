// Hermes: <tool_call>\n{"name": NAME, "arguments": {...}}\n</tool_call>, any number of them, as
// NousResearch/Hermes-Function-Calling documents it; Qwen 2.5 and 3 write the same.
#include <optional>

#include "text/answer_format/answer_format.h"
#include "text/answer_format/call_parser.h"
#include "text/answer_format/json_call.h"
#include "text/answer_format/parsers.h"

namespace shoal::text {
namespace {

class HermesParser final : public CallParser {
 public:
  explicit HermesParser(AnswerParserOptions options) : CallParser(std::move(options)) {}

 private:
  enum class State { kContent, kBefore, kCall, kAfter };

  bool step() override {
    switch (state_) {
      case State::kContent:
        if (!open_at(HermesMarks::kCall, CallOpening::kAsTriggered)) return false;
        state_ = State::kBefore;
        return true;
      case State::kBefore:
        if (!keep_white_space()) return false;
        call_.emplace(writer());
        state_ = State::kCall;
        return true;
      case State::kCall:
        return read_call();
      case State::kAfter:
        return close_call();
    }
    return false;
  }

  bool read_call() {
    const JsonProgress progress = take(call_->read(rest()));
    if (progress == JsonProgress::kMore) return false;
    state_ = progress == JsonProgress::kDone ? State::kAfter : State::kContent;
    return true;
  }

  // Some models leave the mark out, or put two calls between a pair of marks.
  bool close_call() {
    if (!keep_white_space()) return false;
    const Beginning found = beginning(rest(), HermesMarks::kCallEnd);
    if (found == Beginning::kPerhaps) return false;
    if (found == Beginning::kMark) skip(HermesMarks::kCallEnd.size());
    if (found == Beginning::kOther && rest().starts_with('{')) {
      writer().open(CallOpening::kOther);
      state_ = State::kBefore;
    } else {
      state_ = State::kContent;
    }
    return true;
  }

  State state_ = State::kContent;
  std::optional<JsonCall> call_;
};

}  // namespace

std::unique_ptr<AnswerParser> make_hermes_parser(AnswerParserOptions options) {
  return std::make_unique<HermesParser>(std::move(options));
}

}  // namespace shoal::text

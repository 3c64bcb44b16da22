// DeepSeek: between <｜tool▁calls▁begin｜> and <｜tool▁calls▁end｜>, calls between
// <｜tool▁call▁begin｜> and <｜tool▁call▁end｜>: `function<｜tool▁sep｜>NAME`, a line break and the
// arguments in a fence of Markdown (V3, R1), or `NAME<｜tool▁sep｜>{...}` (V3.1); as their
// templates have it.
#include <algorithm>
#include <optional>

#include "text/answer_format/answer_format.h"
#include "text/answer_format/call_parser.h"
#include "text/answer_format/json_call.h"
#include "text/answer_format/parsers.h"

namespace shoal::text {
namespace {

constexpr std::string_view kFence = "```";

class DeepSeekParser final : public CallParser {
 public:
  explicit DeepSeekParser(AnswerParserOptions options) : CallParser(std::move(options)) {}

 private:
  enum class State { kContent, kBetween, kHead, kName, kBeforeArguments, kArguments, kTail };

  bool step() override {
    switch (state_) {
      case State::kContent:
        return begin();
      case State::kBetween:
        return next_call();
      case State::kHead:
        return read_head();
      case State::kName:
        return read_name();
      case State::kBeforeArguments:
        return find_arguments();
      case State::kArguments:
        return read_arguments();
      case State::kTail:
        return read_tail();
    }
    return false;
  }

  bool begin() {
    const auto mark = content_up_to({DeepSeekMarks::kCalls, DeepSeekMarks::kCall});
    if (!mark) return false;
    const bool is_list = *mark == DeepSeekMarks::kCalls;
    // Some models leave the list's mark out, which is the trigger.
    opening_ = is_list ? CallOpening::kAsTriggered : CallOpening::kOther;
    writer().open(opening_);
    if (is_list) keep(DeepSeekMarks::kCalls.size());
    state_ = State::kBetween;
    return true;
  }

  bool give_up() {
    writer().give_up();
    state_ = State::kContent;
    return true;
  }

  bool next_call() {
    if (!keep_white_space()) return false;
    const Beginning call = beginning(rest(), DeepSeekMarks::kCall);
    const Beginning end = beginning(rest(), DeepSeekMarks::kCallsEnd);
    if (call == Beginning::kMark) {
      if (!writer().is_open()) writer().open(opening_);
      keep(DeepSeekMarks::kCall.size());
      state_ = State::kHead;
      return true;
    }
    if (end == Beginning::kMark) {
      skip(DeepSeekMarks::kCallsEnd.size());
      writer().close();
      state_ = State::kContent;
      return true;
    }
    return call == Beginning::kOther && end == Beginning::kOther && give_up();
  }

  bool read_head() {
    const MarkPlace place = find_mark(rest(), {DeepSeekMarks::kSeparator});
    if (place.position > kHeadBytesMax) return give_up();
    if (!place.mark) return false;
    const std::string head(trim(rest().substr(0, place.position)));
    keep(place.position + DeepSeekMarks::kSeparator.size());
    if (head == "function") {
      state_ = State::kName;
      return true;
    }
    return begin_call(head);
  }

  bool begin_call(const std::string& function) {
    if (!writer().may_call(function)) return give_up();
    writer().begin_call(function);
    state_ = State::kBeforeArguments;
    return true;
  }

  bool read_name() {
    const size_t end = rest().find('\n');
    if (std::min(end, rest().size()) > kHeadBytesMax) return give_up();
    if (end == std::string_view::npos) return false;
    const std::string function(trim(rest().substr(0, end)));
    keep(end);
    return begin_call(function);
  }

  // Between the name and its arguments there is a fence, or nothing.
  bool find_arguments() {
    const size_t at = rest().find('{');
    const std::string_view before = trim(rest().substr(0, at));
    if (beginning(before, kFence) == Beginning::kOther || before.size() > kHeadBytesMax) {
      return give_up();
    }
    if (at == std::string_view::npos) return false;
    keep(at);
    arguments_.emplace(writer());
    state_ = State::kArguments;
    return true;
  }

  bool read_arguments() {
    const JsonProgress progress = take(arguments_->read(rest()));
    if (progress == JsonProgress::kMore) return false;
    state_ = progress == JsonProgress::kDone ? State::kTail : State::kContent;
    return true;
  }

  bool read_tail() {
    const size_t begin = rest().find_first_not_of(kWhiteSpace);
    if (begin == std::string_view::npos) return false;
    for (const std::string_view mark : {DeepSeekMarks::kCallEnd, kFence}) {
      const Beginning found = beginning(rest().substr(begin), mark);
      if (found == Beginning::kPerhaps) return false;
      if (found == Beginning::kOther) continue;
      skip(begin + mark.size());
      if (mark == DeepSeekMarks::kCallEnd) state_ = State::kBetween;
      return true;
    }
    state_ = State::kBetween;
    return true;
  }

  State state_ = State::kContent;
  CallOpening opening_ = CallOpening::kOther;
  std::optional<JsonArguments> arguments_;
};

}  // namespace

std::unique_ptr<AnswerParser> make_deepseek_parser(AnswerParserOptions options) {
  return std::make_unique<DeepSeekParser>(std::move(options));
}

}  // namespace shoal::text

// Mistral: [TOOL_CALLS][{"name": NAME, "arguments": {...}}, ...] (tokenizers v2 to v7), or, for
// each call, [TOOL_CALLS]NAME[ARGS]{...} (v11 and later), where [CALL_ID]ID may stand before
// [ARGS]; as mistral-common writes them.
#include <optional>

#include "text/answer_format/answer_format.h"
#include "text/answer_format/call_parser.h"
#include "text/answer_format/json_call.h"
#include "text/answer_format/parsers.h"

namespace shoal::text {
namespace {

class MistralParser final : public CallParser {
 public:
  explicit MistralParser(AnswerParserOptions options) : CallParser(std::move(options)) {}

 private:
  enum class State {
    kContent,
    kBefore,
    kName,
    kId,
    kBeforeArguments,
    kArguments,
    kItem,
    kAfterItem
  };

  bool step() override {
    switch (state_) {
      case State::kContent:
        if (!open_at(MistralMarks::kCalls, CallOpening::kAsTriggered)) return false;
        state_ = State::kBefore;
        return true;
      case State::kBefore:
        return begin();
      case State::kName:
        return read_name();
      case State::kId:
        return skip_id();
      case State::kBeforeArguments:
        if (!keep_white_space()) return false;
        arguments_.emplace(writer());
        state_ = State::kArguments;
        return true;
      case State::kArguments:
        return move_on(arguments_->read(rest()), State::kContent);
      case State::kItem:
        return move_on(item_->read(rest()), State::kAfterItem);
      case State::kAfterItem:
        return next_item();
    }
    return false;
  }

  bool begin() {
    if (!keep_white_space()) return false;
    if (rest().front() == '[' || rest().front() == '{') {
      is_list_ = rest().front() == '[';
      if (is_list_) keep(1);
      state_ = State::kAfterItem;
      return true;
    }
    state_ = State::kName;
    return true;
  }

  bool give_up() {
    writer().give_up();
    state_ = State::kContent;
    return true;
  }

  bool read_name() {
    const MarkPlace place =
        find_mark(rest(), {MistralMarks::kArguments, MistralMarks::kCallId, "{"});
    if (place.position > kHeadBytesMax) return give_up();
    if (!place.mark) return false;
    const std::string name(trim(rest().substr(0, place.position)));
    if (!writer().may_call(name)) return give_up();
    keep(place.position);
    if (*place.mark != "{") keep(place.mark->size());
    writer().begin_call(name);
    state_ = *place.mark == MistralMarks::kCallId ? State::kId : State::kBeforeArguments;
    return true;
  }

  bool skip_id() {
    const MarkPlace place = find_mark(rest(), {MistralMarks::kArguments, "{"});
    if (place.position > kHeadBytesMax) return give_up();
    if (!place.mark) return false;
    keep(place.position);
    if (*place.mark == MistralMarks::kArguments) keep(place.mark->size());
    state_ = State::kBeforeArguments;
    return true;
  }

  bool move_on(const JsonRead& read, State next) {
    const JsonProgress progress = take(read);
    if (progress == JsonProgress::kMore) return false;
    state_ = progress == JsonProgress::kDone ? next : State::kContent;
    return true;
  }

  // An item of the list, or its end; a single call has no list around it.
  bool next_item() {
    const size_t at = rest().find_first_not_of(" \t\r\n,");
    if (at == std::string_view::npos) return false;
    if (rest()[at] == '{' && (is_list_ || writer().is_open())) {
      if (!writer().is_open()) writer().open(CallOpening::kAsTriggered);
      keep(at);
      item_.emplace(writer());
      state_ = State::kItem;
      return true;
    }
    if (rest()[at] == ']' && is_list_ && !writer().is_open()) skip(at + 1);
    return give_up();
  }

  State state_ = State::kContent;
  bool is_list_ = false;
  std::optional<JsonArguments> arguments_;
  std::optional<JsonCall> item_;
};

}  // namespace

std::unique_ptr<AnswerParser> make_mistral_parser(AnswerParserOptions options) {
  return std::make_unique<MistralParser>(std::move(options));
}

}  // namespace shoal::text

// Harmony (gpt-oss): messages <|channel|>CHANNEL<|message|>TEXT, each ended by <|end|>, <|call|> or
// <|return|>, the next begun by <|start|>assistant. The channel analysis has thoughts, final the
// answer, commentary words for the reader or, with to=functions.NAME in its head, the arguments of
// a call; as OpenAI's guide to the Harmony response format has it.
#include "text/answer_format/answer_format.h"
#include "text/answer_format/call_parser.h"
#include "text/answer_format/parsers.h"

namespace shoal::text {
namespace {

// The word behind a mark; a mark or white space ends it.
std::string_view word_after(std::string_view text, std::string_view mark) {
  const size_t at = text.find(mark);
  if (at == std::string_view::npos) return {};
  text = text.substr(at + mark.size());
  return text.substr(0, text.find_first_of(" \t\r\n<"));
}

class HarmonyParser final : public CallParser {
 public:
  explicit HarmonyParser(AnswerParserOptions options) : CallParser(std::move(options)) {}

 private:
  enum class State { kHead, kBody };
  enum class Body { kContent, kThought, kCall };

  bool step() override { return state_ == State::kHead ? read_head() : read_body(); }

  bool read_head() {
    const size_t begin = rest().find_first_not_of(kWhiteSpace);
    if (begin == std::string_view::npos) return false;
    const std::string_view text = rest().substr(begin);
    const bool is_head = beginning(text, HarmonyMarks::kStart) != Beginning::kOther ||
                         beginning(text, HarmonyMarks::kChannel) != Beginning::kOther ||
                         beginning(text, "to=") != Beginning::kOther;
    const MarkPlace place = find_mark(rest(), {HarmonyMarks::kMessage});
    if (!is_head || place.position > kHeadBytesMax) {
      body_ = Body::kContent;
      state_ = State::kBody;
      // The mark that began the head is text now: as a mark it would begin the head again.
      give(rest().substr(0, begin + 1));
      skip(begin + 1);
      return true;
    }
    if (!place.mark) return false;
    begin_body(std::string(rest().substr(0, place.position)));
    return true;
  }

  void begin_body(const std::string& head) {
    constexpr std::string_view kFunctions = "functions.";
    const std::string_view to = word_after(head, "to=");
    const std::string_view function =
        to.starts_with(kFunctions) ? to.substr(kFunctions.size()) : std::string_view();
    state_ = State::kBody;
    const bool is_as_triggered = head.find(HarmonyMarks::kTo) < head.find("to=");
    writer().open(is_as_triggered ? CallOpening::kAsTriggered : CallOpening::kOther);
    keep(head.size() + HarmonyMarks::kMessage.size());
    if (writer().may_call(function)) {
      writer().begin_call(function);
      body_ = Body::kCall;
    } else if (!to.empty()) {
      writer().give_up();  // a tool that was not offered
      body_ = Body::kContent;
    } else {
      writer().close();
      body_ =
          word_after(head, HarmonyMarks::kChannel) == "analysis" ? Body::kThought : Body::kContent;
      if (body_ == Body::kThought && has_thought_) writer().reasoning("\n");
      has_thought_ = has_thought_ || body_ == Body::kThought;
    }
  }

  bool read_body() {
    const MarkPlace place =
        find_mark(rest(), {HarmonyMarks::kEnd, HarmonyMarks::kCall, HarmonyMarks::kReturn,
                           HarmonyMarks::kStart, HarmonyMarks::kChannel});
    give(rest().substr(0, place.position));
    skip(place.position);
    if (!place.mark) return false;
    const bool begins_next =
        *place.mark == HarmonyMarks::kStart || *place.mark == HarmonyMarks::kChannel;
    if (!begins_next) skip(place.mark->size());
    if (body_ == Body::kCall) end_call();
    state_ = State::kHead;
    return true;
  }

  void give(std::string_view text) {
    switch (body_) {
      case Body::kContent:
        writer().content(text);
        return;
      case Body::kThought:
        writer().reasoning(text);
        return;
      case Body::kCall:
        has_arguments_ = has_arguments_ || !trim(text).empty();
        writer().keep(text);
        writer().arguments(text);
        return;
    }
  }

  void end_call() {
    if (!has_arguments_) writer().arguments("{}");
    has_arguments_ = false;
    (void)writer().end_call();
    body_ = Body::kContent;
  }

  // The mark behind a call ends the answer and is not seen. A head without a body says nothing.
  void end() override {
    if (state_ == State::kHead) {
      const bool is_head = trim(rest()).starts_with("<|");
      if (!is_head) writer().content(rest());
      return;
    }
    give(rest());
    if (body_ == Body::kCall) end_call();
  }

  State state_ = State::kHead;
  Body body_ = Body::kContent;
  bool has_arguments_ = false;
  bool has_thought_ = false;
};

}  // namespace

std::unique_ptr<AnswerParser> make_harmony_parser(AnswerParserOptions options) {
  return std::make_unique<HarmonyParser>(std::move(options));
}

}  // namespace shoal::text

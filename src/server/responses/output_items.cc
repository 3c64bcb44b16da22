#include "server/responses/output_items.h"

#include <utility>

#include "server/generate/answer_message.h"
#include "server/openai/answer_shape.h"

namespace shoal::server {

std::string_view status_of(const ChoiceEnd& end) {
  return end.reason == FinishReason::kLength ? "incomplete" : "completed";
}

void OutputItems::add(AnswerPiece piece) {
  using Event = text::AnswerEvent::Kind;
  for (const text::AnswerEvent& event : piece.events) {
    switch (event.kind) {
      case Event::kContent:
        begin_unless_open(Kind::kMessage);
        append(event.text, std::exchange(piece.tokens, {}));
        break;
      case Event::kReasoning:
        begin_unless_open(Kind::kReasoning);
        append(event.text, {});
        break;
      case Event::kCallBegin:
        begin(Kind::kCall, event.text);
        break;
      case Event::kCallArguments:
        append(event.text, {});
        break;
      case Event::kCallEnd:
        // One that was cut off has an end too: the answer's own.
        if (is_whole_call()) close("completed");
        break;
    }
  }
  // Tokens without text.
  if (!options_.wants_logprobs || piece.part != AnswerPart::kContent || piece.tokens.empty())
    return;
  begin_unless_open(Kind::kMessage);
  append("", std::move(piece.tokens));
}

void OutputItems::end(std::string_view status) {
  if (items_.empty() && kind_ == Kind::kNone) begin(Kind::kMessage);
  if (kind_ != Kind::kNone) close(is_whole_call() ? "completed" : status);
}

bool OutputItems::is_whole_call() const {
  return kind_ == Kind::kCall && !arguments_object(text_).is_null();
}

void OutputItems::begin(Kind kind, std::string name) {
  if (kind_ != Kind::kNone) close("completed");
  kind_ = kind;
  id_ = random_id(kind == Kind::kMessage ? "msg_" : kind == Kind::kCall ? "fc_" : "rs_");
  call_id_ = kind == Kind::kCall ? call_id() : "";
  name_ = std::move(name);
  text_.clear();
  tokens_.clear();
  write_item("response.output_item.added", item("in_progress", OrderedJson::array()));
  if (kind == Kind::kCall) return;
  write("response.content_part.added", {{"content_index", 0}, {"part", part()}});
}

void OutputItems::append(const std::string& text, std::vector<AnswerToken> tokens) {
  text_ += text;
  if (write_ != nullptr) {
    switch (kind_) {
      case Kind::kMessage:
        write("response.output_text.delta",
              {{"content_index", 0}, {"delta", text}, {"logprobs", logprobs(tokens)}});
        break;
      case Kind::kReasoning:
        write("response.reasoning_text.delta", {{"content_index", 0}, {"delta", text}});
        break;
      case Kind::kCall:
        write("response.function_call_arguments.delta", {{"delta", text}});
        break;
      case Kind::kNone:
        break;
    }
  }
  if (!options_.wants_logprobs) return;
  for (AnswerToken& token : tokens) tokens_.push_back(std::move(token));
}

void OutputItems::close(std::string_view status) {
  OrderedJson content = OrderedJson::array();
  if (kind_ == Kind::kCall) {
    write("response.function_call_arguments.done", {{"arguments", text_}});
  } else {
    content.push_back(part());
    write_part_end(content[0]);
  }
  OrderedJson whole = item(status, std::move(content));
  write_item("response.output_item.done", whole);
  items_.push_back(std::move(whole));
  kind_ = Kind::kNone;
}

void OutputItems::write_part_end(const OrderedJson& part) const {
  if (write_ == nullptr) return;
  if (kind_ == Kind::kMessage) {
    write("response.output_text.done",
          {{"content_index", 0}, {"text", text_}, {"logprobs", part["logprobs"]}});
  } else {
    write("response.reasoning_text.done", {{"content_index", 0}, {"text", text_}});
  }
  write("response.content_part.done", {{"content_index", 0}, {"part", part}});
}

OrderedJson OutputItems::item(std::string_view status, OrderedJson content) const {
  switch (kind_) {
    case Kind::kReasoning:
      return {{"id", id_},
              {"type", "reasoning"},
              {"status", status},
              {"summary", OrderedJson::array()},
              {"content", std::move(content)}};
    case Kind::kCall:
      return {{"id", id_},           {"type", "function_call"}, {"status", status},
              {"call_id", call_id_}, {"name", name_},           {"arguments", text_}};
    case Kind::kMessage:
    case Kind::kNone:
      break;
  }
  return {{"id", id_},
          {"type", "message"},
          {"status", status},
          {"role", "assistant"},
          {"content", std::move(content)}};
}

OrderedJson OutputItems::part() const {
  if (kind_ == Kind::kReasoning) return {{"type", "reasoning_text"}, {"text", text_}};
  return {{"type", "output_text"},
          {"annotations", OrderedJson::array()},
          {"logprobs", logprobs(tokens_)},
          {"text", text_}};
}

OrderedJson OutputItems::logprobs(const std::vector<AnswerToken>& tokens) const {
  return options_.wants_logprobs ? token_logprobs(*options_.tokenizer, tokens)
                                 : OrderedJson::array();
}

void OutputItems::write_item(const std::string& type, OrderedJson item) const {
  if (write_ != nullptr) write_(type, {{"output_index", items_.size()}, {"item", std::move(item)}});
}

void OutputItems::write(const std::string& type, const OrderedJson& fields) const {
  if (write_ == nullptr) return;
  OrderedJson json = {{"item_id", id_}, {"output_index", items_.size()}};
  json.update(fields);
  write_(type, json);
}

}  // namespace shoal::server

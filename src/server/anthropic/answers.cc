#include "server/anthropic/answers.h"

#include <utility>

#include "server/generate/answer_json.h"
#include "server/generate/answer_message.h"

namespace shoal::server {
namespace {

OrderedJson error_object(const ApiError& error) {
  std::string_view type = error.status < 500 ? "invalid_request_error" : "api_error";
  switch (error.status) {
    case 401:
      type = "authentication_error";
      break;
    case 403:
      type = "permission_error";
      break;
    case 404:
      type = "not_found_error";
      break;
    case 413:
      type = "request_too_large";
      break;
    case 429:
      type = "rate_limit_error";
      break;
    case 503:
      type = "overloaded_error";
      break;
    default:
      break;
  }
  return {{"type", "error"}, {"error", {{"type", type}, {"message", error.message}}}};
}

std::string_view stop_reason(const ChoiceEnd& end) {
  if (end.stop) return "stop_sequence";
  if (end.has_calls && end.reason == FinishReason::kStop) return "tool_use";
  return end.reason == FinishReason::kLength ? "max_tokens" : "end_turn";
}

OrderedJson stop_sequence(const ChoiceEnd& end) {
  return end.stop ? OrderedJson(*end.stop) : OrderedJson(nullptr);
}

class MessageAnswer : public AnswerReceiver {
 public:
  MessageAnswer(MessageAnswerOptions options, std::shared_ptr<Exchange> exchange, Service& service)
      : options_(std::move(options)),
        id_(random_id("msg_")),
        exchange_(std::move(exchange)),
        service_(service) {}

 protected:
  OrderedJson message(OrderedJson content, OrderedJson reason, OrderedJson sequence) const {
    return {{"id", id_},
            {"type", "message"},
            {"role", "assistant"},
            {"model", options_.model},
            {"content", std::move(content)},
            {"stop_reason", std::move(reason)},
            {"stop_sequence", std::move(sequence)}};
  }
  static OrderedJson usage(const ChoiceEnd& end) {
    return {{"input_tokens", end.prompt_tokens - end.cached_tokens},
            {"cache_creation_input_tokens", 0},
            {"cache_read_input_tokens", end.cached_tokens},
            {"output_tokens", end.tokens}};
  }

  const MessageAnswerOptions options_;
  const std::string id_;
  std::shared_ptr<Exchange> exchange_;  // shared with the route's caller
  Service& service_;
};

OrderedJson text_block(std::string text) { return {{"type", "text"}, {"text", std::move(text)}}; }

OrderedJson thinking_block(std::string thought) {
  return {{"type", "thinking"}, {"thinking", std::move(thought)}, {"signature", ""}};
}

OrderedJson tool_use_block(std::string_view id, std::string_view name, OrderedJson input) {
  return {{"type", "tool_use"}, {"id", id}, {"name", name}, {"input", std::move(input)}};
}

class WholeMessage final : public MessageAnswer {
 public:
  using MessageAnswer::MessageAnswer;
  bool has_room() const override { return true; }
  void on_started() override {}
  void on_piece(size_t, AnswerPiece piece) override { answer_.add(piece.events); }
  void on_choice_end(size_t, const ChoiceEnd& end) override { end_ = end; }
  void on_all_ended() override {
    if (end_.has_broken_off()) {
      exchange_->respond(anthropic_error(service_.broken_off(end_)));
      return;
    }
    OrderedJson json = message(content(), stop_reason(end_), stop_sequence(end_));
    json["usage"] = usage(end_);
    exchange_->respond({.body = to_text(json)});
  }

 private:
  OrderedJson content() const {
    OrderedJson blocks = OrderedJson::array();
    if (options_.shows_thoughts && !answer_.reasoning.empty()) {
      blocks.push_back(thinking_block(answer_.reasoning));
    }
    if (!answer_.content.empty()) blocks.push_back(text_block(answer_.content));
    for (const AnswerCall& call : answer_.calls) {
      OrderedJson input = arguments_object(call.arguments);
      // Arguments that are cut off are no object: they are given as the text that they are.
      blocks.push_back(input.is_null() ? text_block(call.arguments)
                                       : tool_use_block(call.id, call.name, std::move(input)));
    }
    if (blocks.empty()) blocks.push_back(text_block(""));
    return blocks;
  }

  AnswerMessage answer_;
  ChoiceEnd end_;
};

class StreamedMessage final : public MessageAnswer {
 public:
  using MessageAnswer::MessageAnswer;
  bool has_room() const override { return exchange_->has_room(); }
  void on_started() override {
    exchange_->start_stream({.heartbeat = "event: ping\ndata: {\"type\": \"ping\"}\n\n"});
    OrderedJson json = message(OrderedJson::array(), nullptr, nullptr);
    json["usage"] = {{"input_tokens", options_.prompt_tokens}, {"output_tokens", 0}};
    write({{"type", "message_start"}, {"message", std::move(json)}});
  }
  void on_piece(size_t, AnswerPiece piece) override {
    for (text::AnswerEvent& event : piece.events) on_event(std::move(event));
  }
  void on_choice_end(size_t, const ChoiceEnd& end) override {
    if (end.has_broken_off()) {
      write(error_object(service_.broken_off(end)));
      return;
    }
    if (blocks_ == 0) open(Block::kText, text_block(""));
    close();
    write({{"type", "message_delta"},
           {"delta", {{"stop_reason", stop_reason(end)}, {"stop_sequence", stop_sequence(end)}}},
           {"usage", usage(end)}});
    write({{"type", "message_stop"}});
  }
  void on_all_ended() override { exchange_->finish(); }

 private:
  enum class Block { kNone, kText, kThinking, kToolUse };

  void on_event(text::AnswerEvent event) {
    using Kind = text::AnswerEvent::Kind;
    switch (event.kind) {
      case Kind::kContent:
        if (block_ != Block::kText) open(Block::kText, text_block(""));
        write_delta({{"type", "text_delta"}, {"text", std::move(event.text)}});
        return;
      case Kind::kReasoning:
        if (!options_.shows_thoughts) return;
        if (block_ != Block::kThinking) open(Block::kThinking, thinking_block(""));
        write_delta({{"type", "thinking_delta"}, {"thinking", std::move(event.text)}});
        return;
      case Kind::kCallBegin:
        open(Block::kToolUse, tool_use_block(call_id(), event.text, OrderedJson::object()));
        return;
      case Kind::kCallArguments:
        write_delta({{"type", "input_json_delta"}, {"partial_json", std::move(event.text)}});
        return;
      case Kind::kCallEnd:
        close();
        return;
    }
  }
  // Ends the block before.
  void open(Block kind, OrderedJson block) {
    close();
    block_ = kind;
    write(
        {{"type", "content_block_start"}, {"index", blocks_}, {"content_block", std::move(block)}});
    ++blocks_;
  }
  void close() {
    if (std::exchange(block_, Block::kNone) == Block::kNone) return;
    write({{"type", "content_block_stop"}, {"index", blocks_ - 1}});
  }
  void write_delta(OrderedJson delta) {
    write({{"type", "content_block_delta"}, {"index", blocks_ - 1}, {"delta", std::move(delta)}});
  }
  void write(const OrderedJson& json) {
    exchange_->write("event: " + json["type"].get<std::string>() + "\n" + to_event(json));
  }

  Block block_ = Block::kNone;
  size_t blocks_ = 0;
};

}  // namespace

std::unique_ptr<AnswerReceiver> make_message_answer(const MessageAnswerOptions& options,
                                                    std::shared_ptr<Exchange> exchange,
                                                    Service& service) {
  if (options.is_stream) {
    return std::make_unique<StreamedMessage>(options, std::move(exchange), service);
  }
  return std::make_unique<WholeMessage>(options, std::move(exchange), service);
}

Response anthropic_error(const ApiError& error) {
  Response response = error_response(error);
  response.body = to_text(error_object(error));
  return response;
}

}  // namespace shoal::server

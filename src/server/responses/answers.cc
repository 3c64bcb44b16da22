#include "server/responses/answers.h"

#include <ctime>
#include <utility>

#include "server/openai/answer_shape.h"

namespace shoal::server {
namespace {

OrderedJson usage(const ChoiceEnd& end) {
  return {
      {"input_tokens", end.prompt_tokens},
      {"input_tokens_details", {{"cached_tokens", end.cached_tokens}, {"cache_write_tokens", 0}}},
      {"output_tokens", end.tokens},
      {"output_tokens_details", {{"reasoning_tokens", 0}}},
      {"total_tokens", end.prompt_tokens + end.tokens}};
}

// Of a response, its message and its text.
std::string_view status_of(const ChoiceEnd& end) {
  return end.reason == FinishReason::kLength ? "incomplete" : "completed";
}

// The response object and its one message, in all their states.
class ResponseObject {
 public:
  explicit ResponseObject(ResponseOptions options)
      : options_(std::move(options)),
        id_(random_id("resp_")),
        message_id_(random_id("msg_")),
        created_(std::time(nullptr)) {}

  const ResponseOptions& options() const { return options_; }
  const std::string& message_id() const { return message_id_; }

  // As it begins.
  OrderedJson begun() const {
    OrderedJson json = {{"id", id_},
                        {"object", "response"},
                        {"created_at", created_},
                        {"status", "in_progress"},
                        {"background", false},
                        {"completed_at", nullptr},
                        {"error", nullptr},
                        {"incomplete_details", nullptr},
                        {"model", options_.model},
                        {"output", OrderedJson::array()},
                        {"previous_response_id", nullptr},
                        {"reasoning", {{"effort", nullptr}, {"summary", nullptr}}},
                        {"service_tier", "default"},
                        {"store", false},
                        {"text", {{"format", {{"type", "text"}}}, {"verbosity", "medium"}}},
                        {"tool_choice", "auto"},
                        {"tools", OrderedJson::array()},
                        {"truncation", "disabled"},
                        {"usage", nullptr}};
    json.update(options_.echo);
    return json;
  }
  // With its answer.
  OrderedJson ended(const AnswerPiece& answer, const ChoiceEnd& end) const {
    OrderedJson json = begun();
    json["status"] = status_of(end);
    if (end.reason == FinishReason::kLength) {
      json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    } else {
      json["completed_at"] = std::time(nullptr);
    }
    json["output"] = OrderedJson::array({message(answer, status_of(end))});
    json["usage"] = usage(end);
    return json;
  }
  OrderedJson failed(const ApiError& error) const {
    OrderedJson json = begun();
    json["status"] = "failed";
    json["error"] = {{"code", "server_error"}, {"message", error.message}};
    return json;
  }

  OrderedJson message_begun() const { return message_with(OrderedJson::array(), "in_progress"); }
  OrderedJson message(const AnswerPiece& answer, std::string_view status) const {
    return message_with(OrderedJson::array({part(answer)}), status);
  }
  OrderedJson part(const AnswerPiece& answer) const {
    return {{"type", "output_text"},
            {"annotations", OrderedJson::array()},
            {"logprobs", logprobs(answer)},
            {"text", answer.text}};
  }
  OrderedJson logprobs(const AnswerPiece& piece) const {
    return options_.wants_logprobs ? token_logprobs(*options_.tokenizer, piece.tokens)
                                   : OrderedJson::array();
  }

 private:
  OrderedJson message_with(OrderedJson content, std::string_view status) const {
    return {{"id", message_id_},
            {"type", "message"},
            {"status", status},
            {"role", "assistant"},
            {"content", std::move(content)}};
  }

  const ResponseOptions options_;
  const std::string id_;
  const std::string message_id_;
  const std::time_t created_;
};

void append(AnswerPiece piece, AnswerPiece* answer) {
  answer->text += piece.text;
  for (AnswerToken& token : piece.tokens) answer->tokens.push_back(std::move(token));
}

class WholeResponse final : public AnswerReceiver {
 public:
  WholeResponse(ResponseOptions options, std::shared_ptr<Exchange> exchange, Service& service)
      : object_(std::move(options)), exchange_(std::move(exchange)), service_(service) {}
  bool has_room() const override { return true; }
  void on_started() override {}
  void on_piece(size_t, AnswerPiece piece) override { append(std::move(piece), &answer_); }
  void on_choice_end(size_t, const ChoiceEnd& end) override {
    if (end.has_broken_off()) {
      exchange_->respond(error_response(service_.broken_off(end)));
    } else {
      exchange_->respond({.body = to_text(object_.ended(answer_, end))});
    }
  }
  void on_all_ended() override {}

 private:
  const ResponseObject object_;
  std::shared_ptr<Exchange> exchange_;  // shared with the route's caller
  Service& service_;
  AnswerPiece answer_;
};

class StreamedResponse final : public AnswerReceiver {
 public:
  StreamedResponse(ResponseOptions options, std::shared_ptr<Exchange> exchange, Service& service)
      : object_(std::move(options)), exchange_(std::move(exchange)), service_(service) {}
  bool has_room() const override { return exchange_->has_room(); }

  void on_started() override {
    exchange_->start_stream({});
    write("response.created", {{"response", object_.begun()}});
    write("response.in_progress", {{"response", object_.begun()}});
    write("response.output_item.added", {{"output_index", 0}, {"item", object_.message_begun()}});
    write_of_part("response.content_part.added", {{"part", object_.part({})}});
  }

  void on_piece(size_t, AnswerPiece piece) override {
    if (!piece.text.empty() || object_.options().wants_logprobs) {
      write_of_part("response.output_text.delta",
                    {{"delta", piece.text}, {"logprobs", object_.logprobs(piece)}});
    }
    append(std::move(piece), &answer_);
  }

  void on_choice_end(size_t, const ChoiceEnd& end) override {
    if (end.has_broken_off()) {
      write("response.failed", {{"response", object_.failed(service_.broken_off(end))}});
      return;
    }
    write_of_part("response.output_text.done",
                  {{"text", answer_.text}, {"logprobs", object_.logprobs(answer_)}});
    write_of_part("response.content_part.done", {{"part", object_.part(answer_)}});
    const std::string_view status = status_of(end);
    write("response.output_item.done",
          {{"output_index", 0}, {"item", object_.message(answer_, status)}});
    write("response." + std::string(status), {{"response", object_.ended(answer_, end)}});
  }

  void on_all_ended() override { exchange_->finish(); }

 private:
  void write(const std::string& type, const OrderedJson& fields) {
    OrderedJson json = {{"type", type}, {"sequence_number", sequence_++}};
    json.update(fields);
    exchange_->write("event: " + type + "\n" + to_event(json));
  }
  // About the message's one part.
  void write_of_part(const std::string& type, const OrderedJson& fields) {
    OrderedJson json = {
        {"item_id", object_.message_id()}, {"output_index", 0}, {"content_index", 0}};
    json.update(fields);
    write(type, json);
  }

  const ResponseObject object_;
  std::shared_ptr<Exchange> exchange_;  // shared with the route's caller
  Service& service_;
  AnswerPiece answer_;
  uint64_t sequence_ = 0;
};

}  // namespace

std::unique_ptr<AnswerReceiver> make_response(const ResponseOptions& options,
                                              std::shared_ptr<Exchange> exchange,
                                              Service& service) {
  if (options.is_stream) {
    return std::make_unique<StreamedResponse>(options, std::move(exchange), service);
  }
  return std::make_unique<WholeResponse>(options, std::move(exchange), service);
}

}  // namespace shoal::server

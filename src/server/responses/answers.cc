#include "server/responses/answers.h"

#include <fmt/format.h>

#include <ctime>
#include <utility>

#include "server/responses/output_items.h"

namespace shoal::server {
namespace {

OrderedJson usage(const ChoiceEnd& end) {
  return {
      {"input_tokens", end.prompt_tokens},
      {"input_tokens_details", {{"cached_tokens", end.cached_tokens}, {"cache_write_tokens", 0}}},
      {"output_tokens", end.tokens},
      {"output_tokens_details", {{"reasoning_tokens", end.thought_tokens}}},
      {"total_tokens", end.prompt_tokens + end.tokens}};
}

// The response object in all its states.
class ResponseObject {
 public:
  explicit ResponseObject(ResponseOptions options)
      : options_(std::move(options)), id_(random_id("resp_")), created_(std::time(nullptr)) {}

  OutputOptions output_options() const {
    return {.tokenizer = options_.tokenizer, .wants_logprobs = options_.wants_logprobs};
  }

  // As it begins.
  std::string begun() const { return written(beginning()); }
  // With its answer.
  std::string ended(const OrderedJson& output, const ChoiceEnd& end) const {
    OrderedJson json = beginning();
    json["status"] = status_of(end);
    if (end.reason == FinishReason::kLength) {
      json["incomplete_details"] = {{"reason", "max_output_tokens"}};
    } else {
      json["completed_at"] = std::time(nullptr);
    }
    json["output"] = output;
    json["usage"] = usage(end);
    return written(json);
  }
  std::string failed(const ApiError& error) const {
    OrderedJson json = beginning();
    json["status"] = "failed";
    json["error"] = {{"code", "server_error"}, {"message", error.message}};
    return written(json);
  }

 private:
  OrderedJson beginning() const {
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
                        {"service_tier", "default"},
                        {"store", false},
                        {"truncation", "disabled"},
                        {"usage", nullptr}};
    json.update(options_.echo.fields);
    return json;
  }
  // As text, with what the client wrote: finding a key in an OrderedJson of it could take long.
  std::string written(const OrderedJson& json) const {
    std::string text = to_text(json);
    text.pop_back();
    const RequestEcho& echo = options_.echo;
    return text + fmt::format(R"(,"text":{},"tool_choice":{},"tools":{}}})", echo.text,
                              echo.tool_choice, echo.tools);
  }

  const ResponseOptions options_;
  const std::string id_;
  const std::time_t created_;
};

class WholeResponse final : public AnswerReceiver {
 public:
  WholeResponse(const ResponseOptions& options, std::shared_ptr<Exchange> exchange,
                Service& service)
      : object_(options),
        output_(object_.output_options()),
        exchange_(std::move(exchange)),
        service_(service) {}
  bool has_room() const override { return true; }
  void on_started() override {}
  void on_piece(size_t, AnswerPiece piece) override { output_.add(std::move(piece)); }
  void on_choice_end(size_t, const ChoiceEnd& end) override {
    if (end.has_broken_off()) {
      exchange_->respond(error_response(service_.broken_off(end)));
      return;
    }
    output_.end(status_of(end));
    exchange_->respond({.body = object_.ended(output_.items(), end)});
  }
  void on_all_ended() override {}

 private:
  const ResponseObject object_;
  OutputItems output_;
  std::shared_ptr<Exchange> exchange_;  // shared with the route's caller
  Service& service_;
};

class StreamedResponse final : public AnswerReceiver {
 public:
  StreamedResponse(const ResponseOptions& options, std::shared_ptr<Exchange> exchange,
                   Service& service)
      : object_(options),
        output_(
            object_.output_options(),
            [this](const std::string& type, const OrderedJson& fields) { write(type, fields); }),
        exchange_(std::move(exchange)),
        service_(service) {}
  bool has_room() const override { return exchange_->has_room(); }

  void on_started() override {
    exchange_->start_stream({});
    write_response("response.created", object_.begun());
    write_response("response.in_progress", object_.begun());
  }
  void on_piece(size_t, AnswerPiece piece) override { output_.add(std::move(piece)); }
  void on_choice_end(size_t, const ChoiceEnd& end) override {
    if (end.has_broken_off()) {
      write_response("response.failed", object_.failed(service_.broken_off(end)));
      return;
    }
    const std::string status(status_of(end));
    output_.end(status);
    write_response("response." + status, object_.ended(output_.items(), end));
  }
  void on_all_ended() override { exchange_->finish(); }

 private:
  void write(const std::string& type, const OrderedJson& fields) {
    OrderedJson json = {{"type", type}, {"sequence_number", sequence_++}};
    json.update(fields);
    exchange_->write("event: " + type + "\n" + to_event(json));
  }
  void write_response(std::string_view type, std::string_view response) {
    exchange_->write(fmt::format(
        "event: {0}\ndata: {{\"type\":\"{0}\",\"sequence_number\":{1},\"response\":{2}}}\n\n", type,
        sequence_++, response));
  }

  const ResponseObject object_;
  OutputItems output_;
  std::shared_ptr<Exchange> exchange_;  // shared with the route's caller
  Service& service_;
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

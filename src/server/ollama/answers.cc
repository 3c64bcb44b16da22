#include "server/ollama/answers.h"

#include <fmt/format.h>

#include <cmath>
#include <ctime>
#include <utility>

#include "server/generate/answer_json.h"
#include "server/generate/answer_message.h"

namespace shoal::server {
namespace {

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

// One object of an answer; what is said is in it wherever the route has it.
OrderedJson piece(const OllamaAnswerOptions& options, const AnswerMessage& said) {
  OrderedJson json = {{"model", options.model}, {"created_at", utc_time(std::time(nullptr))}};
  std::string content = said.content;
  OrderedJson calls = OrderedJson::array();
  for (const AnswerCall& call : said.calls) {
    OrderedJson arguments = arguments_object(call.arguments);
    // Arguments that are cut off are no object: they are given as the text that they are.
    if (arguments.is_null()) {
      content += call.arguments;
    } else {
      calls.push_back({{"id", call.id},
                       {"function", {{"name", call.name}, {"arguments", std::move(arguments)}}}});
    }
  }
  if (options.is_chat) {
    OrderedJson message = {{"role", "assistant"}, {"content", std::move(content)}};
    if (!said.reasoning.empty()) message["thinking"] = said.reasoning;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
    json["message"] = std::move(message);
  } else {
    json["response"] = std::move(content);
    if (!said.reasoning.empty()) json["thinking"] = said.reasoning;
  }
  json["done"] = false;
  return json;
}

OrderedJson last(OrderedJson json, const ChoiceEnd& end) {
  json["done"] = true;
  json["done_reason"] = finish_reason_name(end.reason);
  json["total_duration"] = nanoseconds(end.seconds);
  json["load_duration"] = 0;
  json["prompt_eval_count"] = end.prompt_tokens;
  json["prompt_eval_duration"] = nanoseconds(end.prefill_seconds);
  json["eval_count"] = end.tokens;
  json["eval_duration"] = nanoseconds(end.decode_seconds);
  return json;
}

class WholeOllamaAnswer final : public AnswerReceiver {
 public:
  WholeOllamaAnswer(OllamaAnswerOptions options, std::shared_ptr<Exchange> exchange,
                    Service& service)
      : options_(std::move(options)), exchange_(std::move(exchange)), service_(service) {}
  bool has_room() const override { return true; }
  void on_started() override {}
  void on_piece(size_t, AnswerPiece piece) override { answer_.add(piece.events); }
  void on_choice_end(size_t, const ChoiceEnd& end) override {
    if (end.has_broken_off()) {
      exchange_->respond(ollama_error(service_.broken_off(end)));
    } else {
      exchange_->respond({.body = to_text(last(piece(options_, answer_), end))});
    }
  }
  void on_all_ended() override {}

 private:
  const OllamaAnswerOptions options_;
  std::shared_ptr<Exchange> exchange_;  // shared with the route's caller
  Service& service_;
  AnswerMessage answer_;
};

class StreamedOllamaAnswer final : public AnswerReceiver {
 public:
  StreamedOllamaAnswer(OllamaAnswerOptions options, std::shared_ptr<Exchange> exchange,
                       Service& service)
      : options_(std::move(options)), exchange_(std::move(exchange)), service_(service) {}
  bool has_room() const override { return exchange_->has_room(); }
  void on_started() override {
    exchange_->start_stream({.content_type = "application/x-ndjson", .heartbeat = ""});
  }
  // A call is given once it is whole.
  void on_piece(size_t, AnswerPiece answer) override {
    AnswerMessage said;
    for (text::AnswerEvent& event : answer.events) {
      using Kind = text::AnswerEvent::Kind;
      const bool ends_call = event.kind == Kind::kCallEnd;
      const bool is_text = event.kind == Kind::kContent || event.kind == Kind::kReasoning;
      (is_text ? said : call_).add({std::move(event)});
      if (!ends_call) continue;
      write_if_any(std::exchange(said, {}));
      write_if_any(std::exchange(call_, {}));
    }
    write_if_any(said);
  }
  void on_choice_end(size_t, const ChoiceEnd& end) override {
    if (end.has_broken_off()) {
      write({{"error", service_.broken_off(end).message}});
    } else {
      write(last(piece(options_, {}), end));
    }
  }
  void on_all_ended() override { exchange_->finish(); }

 private:
  void write(const OrderedJson& json) { exchange_->write(to_text(json) + "\n"); }
  void write_if_any(const AnswerMessage& said) {
    const bool is_empty = said.content.empty() && said.reasoning.empty() && said.calls.empty();
    if (!is_empty) write(piece(options_, said));
  }

  const OllamaAnswerOptions options_;
  std::shared_ptr<Exchange> exchange_;  // shared with the route's caller
  Service& service_;
  AnswerMessage call_;  // that has begun
};

}  // namespace

std::unique_ptr<AnswerReceiver> make_ollama_answer(const OllamaAnswerOptions& options,
                                                   std::shared_ptr<Exchange> exchange,
                                                   Service& service) {
  if (options.is_stream) {
    return std::make_unique<StreamedOllamaAnswer>(options, std::move(exchange), service);
  }
  return std::make_unique<WholeOllamaAnswer>(options, std::move(exchange), service);
}

Response ollama_loaded(const OllamaAnswerOptions& options) {
  OrderedJson json = piece(options, {});
  json["done"] = true;
  json["done_reason"] = "load";
  return {.body = to_text(json) + "\n",
          .content_type = options.is_stream ? "application/x-ndjson" : "application/json"};
}

Response ollama_error(const ApiError& error) {
  Response response = error_response(error);
  response.body = to_text({{"error", error.message}});
  return response;
}

std::string utc_time(std::time_t time) {
  std::tm parts{};
  gmtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace shoal::server

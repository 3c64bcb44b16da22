#include "server/openai/answers.h"

#include <ctime>
#include <utility>

#include "server/generate/answer_json.h"

namespace shoal::server {
namespace {

struct Usage {
  size_t prompt_tokens = 0;
  size_t cached_tokens = 0;
  size_t tokens = 0;
  size_t thought_tokens = 0;

  void add(const ChoiceEnd& end, bool counts_prompt) {
    tokens += end.tokens;
    thought_tokens += end.thought_tokens;
    if (!counts_prompt) return;
    prompt_tokens += end.prompt_tokens;
    cached_tokens += end.cached_tokens;
  }
  OrderedJson to_json() const {
    return {{"prompt_tokens", prompt_tokens},
            {"completion_tokens", tokens},
            {"total_tokens", prompt_tokens + tokens},
            {"prompt_tokens_details", {{"cached_tokens", cached_tokens}}},
            {"completion_tokens_details", {{"reasoning_tokens", thought_tokens}}}};
  }
};

std::string_view openai_finish_reason(const ChoiceEnd& end) {
  const bool ends_with_calls = end.has_calls && end.reason == FinishReason::kStop;
  return ends_with_calls ? "tool_calls" : finish_reason_name(end.reason);
}

// What both kinds of answer begin with.
class Head {
 public:
  Head(AnswerOptions options, const AnswerShape& shape)
      : options_(std::move(options)),
        id_(random_id(shape.id_prefix())),
        created_(std::time(nullptr)) {}

  OrderedJson object(std::string_view name, OrderedJson choices) const {
    return {{"id", id_},
            {"object", name},
            {"created", created_},
            {"model", options_.model},
            {"system_fingerprint", options_.fingerprint},
            {"choices", std::move(choices)}};
  }
  const AnswerOptions& options() const { return options_; }
  bool counts_prompt(size_t choice) const { return choice % options_.choices_per_prompt == 0; }

 private:
  const AnswerOptions options_;
  const std::string id_;
  const std::time_t created_;
};

class WholeAnswer final : public AnswerReceiver {
 public:
  WholeAnswer(const AnswerOptions& options, std::unique_ptr<AnswerShape> shape,
              std::shared_ptr<Exchange> exchange, Service& service)
      : head_(options, *shape),
        shape_(std::move(shape)),
        exchange_(std::move(exchange)),
        service_(service),
        answers_(options.choices),
        ends_(options.choices) {}

  bool has_room() const override { return true; }
  void on_started() override {}
  void on_piece(size_t choice, AnswerPiece piece) override {
    AnswerPiece& answer = answers_[choice];
    answer.text += piece.text;
    for (AnswerToken& token : piece.tokens) answer.tokens.push_back(std::move(token));
    for (text::AnswerEvent& event : piece.events) answer.events.push_back(std::move(event));
  }
  void on_choice_end(size_t choice, const ChoiceEnd& end) override { ends_[choice] = end; }

  void on_all_ended() override {
    OrderedJson choices = OrderedJson::array();
    Usage usage;
    for (size_t i = 0; i < ends_.size(); ++i) {
      if (ends_[i].has_broken_off()) {
        exchange_->respond(error_response(service_.broken_off(ends_[i])));
        return;
      }
      usage.add(ends_[i], head_.counts_prompt(i));
      choices.push_back(shape_->whole(i, answers_[i], openai_finish_reason(ends_[i])));
    }
    OrderedJson json = head_.object(shape_->object(false), std::move(choices));
    json["usage"] = usage.to_json();
    exchange_->respond({.body = to_text(json)});
  }

 private:
  Head head_;
  std::unique_ptr<AnswerShape> shape_;
  std::shared_ptr<Exchange> exchange_;
  Service& service_;
  std::vector<AnswerPiece> answers_;
  std::vector<ChoiceEnd> ends_;
};

class StreamedAnswer final : public AnswerReceiver {
 public:
  StreamedAnswer(const AnswerOptions& options, std::unique_ptr<AnswerShape> shape,
                 std::shared_ptr<Exchange> exchange, Service& service)
      : head_(options, *shape),
        shape_(std::move(shape)),
        exchange_(std::move(exchange)),
        service_(service) {}

  bool has_room() const override { return exchange_->has_room(); }

  void on_started() override {
    exchange_->start_stream({});
    for (size_t i = 0; i < head_.options().choices; ++i) {
      if (auto first = shape_->first_chunk(i)) write(std::move(*first));
    }
  }

  void on_piece(size_t choice, AnswerPiece piece) override {
    if (has_failed_) return;
    for (OrderedJson& chunk : shape_->chunks(choice, piece)) write(std::move(chunk));
  }

  void on_choice_end(size_t choice, const ChoiceEnd& end) override {
    if (has_failed_) return;
    if (end.has_broken_off()) {
      has_failed_ = true;
      exchange_->write("data: " + error_json(service_.broken_off(end)) + "\n\n");
      return;
    }
    usage_.add(end, head_.counts_prompt(choice));
    write(shape_->last_chunk(choice, openai_finish_reason(end)));
  }

  void on_all_ended() override {
    if (!has_failed_) {
      if (head_.options().includes_usage) {
        OrderedJson json = head_.object(shape_->object(true), OrderedJson::array());
        json["usage"] = usage_.to_json();
        exchange_->write(to_event(json));
      }
      exchange_->write("data: [DONE]\n\n");
    }
    exchange_->finish();
  }

 private:
  void write(OrderedJson choice) {
    OrderedJson json = head_.object(shape_->object(true), OrderedJson::array({std::move(choice)}));
    if (head_.options().includes_usage) json["usage"] = nullptr;
    exchange_->write(to_event(json));
  }

  Head head_;
  std::unique_ptr<AnswerShape> shape_;
  std::shared_ptr<Exchange> exchange_;
  Service& service_;
  Usage usage_;
  bool has_failed_ = false;
};

}  // namespace

std::unique_ptr<AnswerReceiver> make_answer(const AnswerOptions& options,
                                            std::unique_ptr<AnswerShape> shape,
                                            std::shared_ptr<Exchange> exchange, Service& service) {
  if (options.is_stream) {
    return std::make_unique<StreamedAnswer>(options, std::move(shape), std::move(exchange),
                                            service);
  }
  return std::make_unique<WholeAnswer>(options, std::move(shape), std::move(exchange), service);
}

}  // namespace shoal::server

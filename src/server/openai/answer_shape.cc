#include "server/openai/answer_shape.h"

#include <fmt/format.h>

#include <utility>

#include "server/generate/answer_message.h"
#include "text/utf8.h"

namespace shoal::server {
namespace {

using text::TokenKind;

bool is_utf8(std::string_view bytes) {
  std::string pending(bytes);
  std::string whole;
  text::take_characters(pending, whole);
  return pending.empty() && whole == bytes;
}

size_t code_points(std::string_view text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0U) != 0x80U ? 1 : 0;
  return count;
}

// The bytes that a token adds to an answer: a control token adds none.
std::string_view text_bytes(const text::Tokenizer& tokenizer, runtime::TokenId id) {
  return tokenizer.token_kind(id) == TokenKind::kControl ? std::string_view()
                                                         : tokenizer.token_bytes(id);
}

OrderedJson chat_token(const text::Tokenizer& tokenizer, runtime::TokenId id, float logprob) {
  OrderedJson json = {{"token", token_label(tokenizer.token_bytes(id))}, {"logprob", logprob}};
  if (tokenizer.token_kind(id) == TokenKind::kControl) {
    json["bytes"] = nullptr;
    return json;
  }
  OrderedJson bytes = OrderedJson::array();
  for (const char byte : tokenizer.token_bytes(id)) {
    bytes.push_back(static_cast<unsigned char>(byte));
  }
  json["bytes"] = std::move(bytes);
  return json;
}

class ChatShape final : public AnswerShape {
 public:
  explicit ChatShape(const ShapeOptions& options) : options_(options) {}

  std::string_view id_prefix() const override { return "chatcmpl-"; }
  std::string_view object(bool is_stream) const override {
    return is_stream ? "chat.completion.chunk" : "chat.completion";
  }
  std::optional<OrderedJson> first_chunk(size_t choice) override {
    return entry(choice, {{"role", "assistant"}, {"content", ""}}, nullptr, nullptr);
  }
  std::vector<OrderedJson> chunks(size_t choice, const AnswerPiece& piece) override {
    std::vector<OrderedJson> chunks;
    for (const text::AnswerEvent& event : piece.events) {
      if (auto json = delta(choice, event)) {
        chunks.push_back(entry(choice, std::move(*json), nullptr, nullptr));
      }
    }
    if (options_.wants_logprobs && !piece.tokens.empty()) {
      if (chunks.empty()) chunks.push_back(entry(choice, {{"content", ""}}, nullptr, nullptr));
      chunks.front()["logprobs"] = logprobs(piece.tokens);
    }
    return chunks;
  }
  OrderedJson last_chunk(size_t choice, std::string_view finish_reason) override {
    return entry(choice, OrderedJson::object(), nullptr, finish_reason);
  }
  OrderedJson whole(size_t choice, const AnswerPiece& answer,
                    std::string_view finish_reason) override {
    AnswerMessage said;
    said.add(answer.events);
    OrderedJson message = {{"role", "assistant"}, {"content", said.content}, {"refusal", nullptr}};
    if (!said.reasoning.empty()) message["reasoning_content"] = said.reasoning;
    if (!said.calls.empty()) {
      if (said.content.empty()) message["content"] = nullptr;
      OrderedJson calls = OrderedJson::array();
      for (const AnswerCall& call : said.calls) {
        calls.push_back({{"id", call.id},
                         {"type", "function"},
                         {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
      }
      message["tool_calls"] = std::move(calls);
    }
    return {{"index", choice},
            {"message", std::move(message)},
            {"logprobs", logprobs(answer.tokens)},
            {"finish_reason", finish_reason}};
  }

 private:
  static OrderedJson entry(size_t choice, OrderedJson delta, OrderedJson logprobs,
                           OrderedJson finish_reason) {
    return {{"index", choice},
            {"delta", std::move(delta)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(finish_reason)}};
  }

  // What an event adds to the message; the end of a call adds nothing.
  std::optional<OrderedJson> delta(size_t choice, const text::AnswerEvent& event) {
    using Kind = text::AnswerEvent::Kind;
    if (calls_.size() <= choice) calls_.resize(choice + 1);
    switch (event.kind) {
      case Kind::kContent:
        return OrderedJson{{"content", event.text}};
      case Kind::kReasoning:
        return OrderedJson{{"reasoning_content", event.text}};
      case Kind::kCallBegin:
        return call_delta({{"index", calls_[choice]++},
                           {"id", call_id()},
                           {"type", "function"},
                           {"function", {{"name", event.text}, {"arguments", ""}}}});
      case Kind::kCallArguments:
        return call_delta(
            {{"index", calls_[choice] - 1}, {"function", {{"arguments", event.text}}}});
      case Kind::kCallEnd:
        break;
    }
    return std::nullopt;
  }

  static OrderedJson call_delta(OrderedJson call) {
    return {{"tool_calls", OrderedJson::array({std::move(call)})}};
  }

  OrderedJson logprobs(const std::vector<AnswerToken>& tokens) const {
    if (!options_.wants_logprobs) return nullptr;
    return {{"content", token_logprobs(*options_.tokenizer, tokens)}, {"refusal", nullptr}};
  }

  const ShapeOptions options_;
  std::vector<size_t> calls_;  // of each choice so far
};

class CompletionShape final : public AnswerShape {
 public:
  CompletionShape(const ShapeOptions& options, std::vector<std::string> echoes)
      : options_(options), echoes_(std::move(echoes)) {}

  std::string_view id_prefix() const override { return "cmpl-"; }
  std::string_view object(bool) const override { return "text_completion"; }
  std::optional<OrderedJson> first_chunk(size_t choice) override {
    if (echoes_.empty()) return std::nullopt;
    return entry(choice, echoes_.at(choice), nullptr, nullptr);
  }
  std::vector<OrderedJson> chunks(size_t choice, const AnswerPiece& piece) override {
    std::vector<OrderedJson> chunks;
    if (!piece.text.empty() || !piece.tokens.empty()) {
      chunks.push_back(entry(choice, piece.text, logprobs(choice, piece.tokens), nullptr));
    }
    return chunks;
  }
  OrderedJson last_chunk(size_t choice, std::string_view finish_reason) override {
    return entry(choice, "", nullptr, finish_reason);
  }
  OrderedJson whole(size_t choice, const AnswerPiece& answer,
                    std::string_view finish_reason) override {
    const std::string echo = echoes_.empty() ? "" : echoes_.at(choice);
    return entry(choice, echo + answer.text, logprobs(choice, answer.tokens), finish_reason);
  }

 private:
  static OrderedJson entry(size_t choice, std::string text, OrderedJson logprobs,
                           OrderedJson finish_reason) {
    return {{"index", choice},
            {"text", std::move(text)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(finish_reason)}};
  }

  std::string label(runtime::TokenId id) const {
    const std::string_view bytes = options_.tokenizer->token_bytes(id);
    return (is_utf8(bytes) ? "" : "bytes:") + token_label(bytes);
  }

  OrderedJson logprobs(size_t choice, const std::vector<AnswerToken>& tokens) {
    if (!options_.wants_logprobs) return nullptr;
    if (offsets_.size() <= choice) offsets_.resize(choice + 1);
    OrderedJson labels = OrderedJson::array();
    OrderedJson values = OrderedJson::array();
    OrderedJson tops = OrderedJson::array();
    OrderedJson offsets = OrderedJson::array();
    for (const AnswerToken& token : tokens) {
      labels.push_back(label(token.id));
      values.push_back(token.logprob);
      OrderedJson top = OrderedJson::object();
      for (const runtime::TokenLogprob& other : token.top) {
        // Of several tokens with one text the likeliest counts.
        if (!top.contains(label(other.id))) top[label(other.id)] = other.logprob;
      }
      if (!top.contains(label(token.id))) top[label(token.id)] = token.logprob;
      tops.push_back(std::move(top));
      offsets.push_back(offsets_[choice]);
      offsets_[choice] += code_points(text_bytes(*options_.tokenizer, token.id));
    }
    return {{"tokens", std::move(labels)},
            {"token_logprobs", std::move(values)},
            {"top_logprobs", std::move(tops)},
            {"text_offset", std::move(offsets)}};
  }

  const ShapeOptions options_;
  const std::vector<std::string> echoes_;
  std::vector<size_t> offsets_;  // of each choice's next token, in characters
};

}  // namespace

OrderedJson token_logprobs(const text::Tokenizer& tokenizer,
                           const std::vector<AnswerToken>& tokens) {
  OrderedJson content = OrderedJson::array();
  for (const AnswerToken& token : tokens) {
    OrderedJson json = chat_token(tokenizer, token.id, token.logprob);
    OrderedJson top = OrderedJson::array();
    for (const runtime::TokenLogprob& other : token.top) {
      top.push_back(chat_token(tokenizer, other.id, other.logprob));
    }
    json["top_logprobs"] = std::move(top);
    content.push_back(std::move(json));
  }
  return content;
}

std::string token_label(std::string_view bytes) {
  if (is_utf8(bytes)) return std::string(bytes);
  std::string label;
  for (const char byte : bytes) label += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return label;
}

std::unique_ptr<AnswerShape> make_chat_shape(const ShapeOptions& options) {
  return std::make_unique<ChatShape>(options);
}

std::unique_ptr<AnswerShape> make_completion_shape(const ShapeOptions& options,
                                                   std::vector<std::string> echoes) {
  return std::make_unique<CompletionShape>(options, std::move(echoes));
}

}  // namespace shoal::server

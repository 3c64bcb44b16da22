#include "server/embed/answers.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "server/embed/embedding_text.h"
#include "server/generate/answer_json.h"
#include "server/ollama/answers.h"

namespace shoal::server {
namespace {

// Each embedding becomes text as it comes: the thread that does it serves everybody's streams, and
// thousands at once would hold them up.
class EmbeddingAnswer final : public EmbeddingReceiver {
 public:
  EmbeddingAnswer(EmbeddingAnswerOptions options, std::shared_ptr<Exchange> exchange,
                  Service& service)
      : options_(std::move(options)),
        exchange_(std::move(exchange)),
        service_(service),
        vectors_(options_.texts) {}

  void on_embedding(size_t text, std::vector<float> values) override {
    const std::vector<float> unit = normalize(values, options_.dimensions);
    vectors_[text] = options_.format == EmbeddingFormat::kBase64 ? '"' + to_base64(unit) + '"'
                                                                 : to_numbers(unit);
  }

  void on_end(const ChoiceEnd& end) override {
    if (end.has_broken_off()) {
      exchange_->respond(embedding_error(options_.api, service_.broken_off(end)));
      return;
    }
    switch (options_.api) {
      case EmbeddingApi::kOpenAi:
        exchange_->respond({.body = openai(end)});
        break;
      case EmbeddingApi::kOllama:
        exchange_->respond({.body = ollama(end)});
        break;
      case EmbeddingApi::kOllamaOlder:
        exchange_->respond(
            {.body = R"({"embedding":)" + (vectors_.empty() ? "[]" : vectors_.front()) + "}"});
        break;
    }
  }

 private:
  std::string model() const { return to_text(OrderedJson(options_.model)); }

  std::string openai(const ChoiceEnd& end) const {
    std::string body = R"({"object":"list","data":[)";
    for (size_t i = 0; i < vectors_.size(); ++i) {
      body +=
          fmt::format(R"({}{{"object":"embedding","index":{},"embedding":)", i == 0 ? "" : ",", i);
      body += vectors_[i];
      body += '}';
    }
    return body + fmt::format(R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                              model(), end.prompt_tokens, end.prompt_tokens);
  }

  std::string ollama(const ChoiceEnd& end) const {
    std::string body = fmt::format(R"({{"model":{},"embeddings":[)", model());
    for (size_t i = 0; i < vectors_.size(); ++i) {
      if (i > 0) body += ',';
      body += vectors_[i];
    }
    return body + fmt::format(R"(],"total_duration":{},"load_duration":0,"prompt_eval_count":{}}})",
                              std::llround(end.seconds * 1e9), end.prompt_tokens);
  }

  const EmbeddingAnswerOptions options_;
  std::shared_ptr<Exchange> exchange_;  // shared with the route's caller
  Service& service_;
  std::vector<std::string> vectors_;  // as JSON
};

}  // namespace

std::unique_ptr<EmbeddingReceiver> make_embedding_answer(const EmbeddingAnswerOptions& options,
                                                         std::shared_ptr<Exchange> exchange,
                                                         Service& service) {
  return std::make_unique<EmbeddingAnswer>(options, std::move(exchange), service);
}

Response embedding_error(EmbeddingApi api, const ApiError& error) {
  return api == EmbeddingApi::kOpenAi ? error_response(error) : ollama_error(error);
}

}  // namespace shoal::server

// Service: the model behind the routes, from loading to the end, and what routes share.
//
// Thread rule: any thread. Borrows workers and metrics; a ServedModel's parts must outlive it.
#pragma once

#include <atomic>
#include <ctime>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/model_config.h"
#include "server/api/fields.h"
#include "server/embed/embedding_batch.h"
#include "server/generate/generation.h"
#include "server/http/exchange.h"
#include "server/own/metrics.h"
#include "text/answer_format/answer_format.h"
#include "text/chat_template.h"
#include "text/grammar/grammar.h"
#include "text/tokenizer.h"

namespace shoal::server {

// What is said about a model to those who ask.
struct ModelFacts {
  std::string format;           // "gguf", "safetensors"
  std::string family;           // "llama"
  std::string quantization;     // the type of most of its bytes: "Q4_1"
  std::string parameters_text;  // "134.5 M"
  uint64_t parameters = 0;
  uint64_t bytes = 0;  // of its tensors
  std::string chat_template;
};

// How texts become vectors.
struct EmbeddingFacts {
  size_t size = 0;  // floats of one
  model::Pooling pooling = model::Pooling::kLast;
  std::string unserved{};  // model::ModelConfig::unserved_embedding
};

struct ServedModel {
  const text::Tokenizer* tokenizer = nullptr;
  const text::ChatTemplate* chat_template = nullptr;  // null: `no_chat` says why
  std::string no_chat{};
  const text::GrammarCompiler* grammars = nullptr;  // of the tokenizer
  Generator* generator = nullptr;
  size_t context = 0;           // of one request: prompt and answer together
  text::AnswerFormat format{};  // set by Service, from the chat template
  ModelFacts facts{};
  EmbeddingFacts embedding{};
};

struct ServiceNames {
  std::string model;        // as requests name it
  std::string fingerprint;  // of the build and the layout: equal where seeds repeat answers
  std::string version;      // of this program
};

class Service {
 public:
  Service(ServiceNames names, Workers& text_worker, Metrics& metrics)
      : names_(std::move(names)), text_worker_(text_worker), metrics_(metrics) {}
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  enum class Phase { kLoading, kReady, kDraining, kFailed };
  Phase phase() const { return phase_.load(); }
  void set_ready(const ServedModel& model);
  void set_draining() { phase_.store(Phase::kDraining); }
  // The engine is broken. The first cause stays.
  void set_failed(const Status& status);
  // The same where the status says that the engine is broken, and nothing for a request's own.
  void note_failure(const Status& status);
  // What a choice that has broken off is answered with: 500 where the request was not to be
  // computed, 429 where there was no place for the rest of it, else 503. Notes the failure.
  ApiError broken_off(const ChoiceEnd& end);
  std::string failure() const;

  // The model where it is ready; else 503.
  ApiResult<const ServedModel*> model() const;
  // As model(), for a request that names `name`; 404 for another name.
  ApiResult<const ServedModel*> model_named(std::string_view name) const;

  // Starts the answers; false: the receiver is gone and the error says why.
  std::optional<ApiError> generate(const ServedModel& model, std::vector<Choice> choices,
                                   std::unique_ptr<AnswerReceiver> receiver,
                                   const std::shared_ptr<Exchange>& exchange);

  // The same for the embeddings of texts, at least one, that check_text() passed.
  std::optional<ApiError> embed(const ServedModel& model,
                                std::vector<std::vector<runtime::TokenId>> texts,
                                std::unique_ptr<EmbeddingReceiver> receiver,
                                const std::shared_ptr<Exchange>& exchange);

  const ServiceNames& names() const { return names_; }
  std::time_t started() const { return started_; }
  const Metrics& metrics() const { return metrics_; }

 private:
  const ServiceNames names_;
  const std::time_t started_ = std::time(nullptr);
  Workers& text_worker_;
  Metrics& metrics_;
  std::atomic<Phase> phase_{Phase::kLoading};
  ServedModel model_;  // set before the phase says so
  mutable std::mutex mutex_;
  std::string failure_;
};

// The prompt of a conversation without tools: the model's own errors as 400.
ApiResult<std::vector<runtime::TokenId>> render_chat(const ServedModel& model, Json input);
// As a chat's prompt, but plain: control tokens in the text are parsed, as its template's are.
ApiResult<std::vector<runtime::TokenId>> encode_prompt(const ServedModel& model,
                                                       const std::string& text);
// 400 where no answer fits behind it.
std::optional<ApiError> check_prompt(const ServedModel& model,
                                     const std::vector<runtime::TokenId>& prompt);
// 400 where a text of so many tokens at most cannot be embedded.
std::optional<ApiError> check_text(const ServedModel& model,
                                   const std::vector<runtime::TokenId>& text, size_t tokens_max);
// The error of a status: 400 for the request's own, 429 for a full queue, 503 for a broken engine.
ApiError to_error(const Status& status, const Generator& generator);

}  // namespace shoal::server

// ApiFixture: all routes over a scripted model, called without sockets or through a port.
//
// Thread rule: the test's thread.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "server/http/http_server.h"
#include "server/http/router.h"
#include "server/own/metrics.h"
#include "server/service.h"
#include "server/testing/recorded_exchange.h"
#include "server/testing/scripted_generator.h"
#include "server/testing/word_tokenizer.h"

namespace shoal::server {

class ApiFixture {
 public:
  // The template that is used without another: each message as "role:content\n", then
  // "assistant{{ suffix }}:"; it refuses the content "refuse". It has no place for tools.
  static const char* const kPlainTemplate;
  // With tools as [{{ tools | tojson }}], calls as <tool_call>, and thoughts (enable_thinking).
  static const char* const kToolTemplate;

  // is_ready: the model is loaded.
  explicit ApiFixture(bool is_ready = true,
                      EmbeddingFacts embedding = {.size = ScriptedGenerator::kHiddenSize})
      : ApiFixture(kPlainTemplate, is_ready, std::move(embedding)) {}
  explicit ApiFixture(const char* chat_template, bool is_ready = true,
                      EmbeddingFacts embedding = {.size = ScriptedGenerator::kHiddenSize});

  using Answer = std::shared_ptr<RecordedExchange>;
  // Starts a request; the answer may still be under way.
  Answer start(std::string_view method, std::string_view path, std::string body = {});
  // The same, to its end.
  Answer call(std::string_view method, std::string_view path, const nlohmann::json& body = {});
  void load();

  // The same routes behind a port of this machine, for what is not a route's own.
  std::unique_ptr<HttpServer> listen(HttpOptions options = {}, AccessOptions access = {}) const;

  ScriptedGenerator& generator() { return generator_; }
  const text::Tokenizer& tokenizer() const { return *tokenizer_; }
  const text::GrammarCompiler& grammars() const { return *grammars_; }
  const Router& router() const { return router_; }
  Service& service() { return service_; }
  Metrics& metrics() { return metrics_; }

  // The prompt of the n-th request.
  std::string prompt(size_t index);

  // Words 0, 1, 2, 3 of the vocabulary: " one", " two", " three", "END".
  static int32_t word(int number) { return word_token(number); }

 private:
  const std::string source_;
  std::unique_ptr<text::Tokenizer> tokenizer_;
  std::unique_ptr<text::ChatTemplate> template_;
  const EmbeddingFacts embedding_;
  std::unique_ptr<text::GrammarCompiler> grammars_;
  ScriptedGenerator generator_;
  Metrics metrics_;
  std::unique_ptr<Workers> workers_;
  Service service_;
  Router router_;
};

}  // namespace shoal::server

#include "server/testing/api_fixture.h"

#include <utility>

#include "server/anthropic/routes.h"
#include "server/embed/routes.h"
#include "server/ollama/routes.h"
#include "server/openai/routes.h"
#include "server/own/routes.h"
#include "server/responses/routes.h"

namespace shoal::server {
namespace {

constexpr std::string_view kTemplate =
    "{% for m in messages %}{% if m.content == 'refuse' %}{{ raise_exception('not this') }}"
    "{% endif %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant{{ suffix }}:{% endif %}";

template <typename T>
T value_of(Result<T> result) {
  CHECK_MSG(result.is_ok(), result.status().message().c_str());
  return std::move(result).value();
}

}  // namespace

ApiFixture::ApiFixture(bool is_ready, EmbeddingFacts embedding)
    : tokenizer_(make_word_tokenizer({"▁one", "▁two", "▁three", "END"})),
      template_(
          value_of(text::ChatTemplate::parse(kTemplate, text::chat_template_options(*tokenizer_)))),
      embedding_(std::move(embedding)),
      grammars_(value_of(text::GrammarCompiler::create(*tokenizer_))),
      generator_(static_cast<size_t>(tokenizer_->vocabulary_size())),
      metrics_("tiny"),
      workers_(value_of(Workers::start(1))),
      service_({.model = "tiny", .fingerprint = "fp-test", .version = "1.2.3"}, *workers_,
               metrics_) {
  add_openai_routes(service_, &router_);
  add_anthropic_routes(service_, &router_);
  add_ollama_routes(service_, &router_);
  add_embedding_routes(service_, &router_);
  add_responses_routes(service_, &router_);
  add_own_routes(service_, &router_);
  if (is_ready) load();
}

void ApiFixture::load() {
  service_.set_ready({.tokenizer = tokenizer_.get(),
                      .chat_template = template_.get(),
                      .grammars = grammars_.get(),
                      .generator = &generator_,
                      .context = ScriptedGenerator::kContext,
                      .facts = {.format = "gguf",
                                .family = "llama",
                                .quantization = "Q4_0",
                                .parameters_text = "1 k",
                                .parameters = 1000,
                                .bytes = 4000,
                                .chat_template = std::string(kTemplate)},
                      .embedding = embedding_});
}

ApiFixture::Answer ApiFixture::start(std::string_view method, std::string_view path,
                                     std::string body) {
  const Router::Match match = router_.find(method, path);
  CHECK_MSG(match.route != nullptr, match.error.message.c_str());
  // Shared with the generation, as a connection's is.
  const auto exchange = std::make_shared<RecordedExchange>();
  match.route->handler({.method = std::string(method),
                        .target = std::string(path),
                        .headers = {},
                        .body = std::move(body),
                        .tail = match.tail},
                       exchange);
  return exchange;
}

ApiFixture::Answer ApiFixture::call(std::string_view method, std::string_view path,
                                    const nlohmann::json& body) {
  const Answer answer = start(method, path, body.is_null() ? "" : body.dump());
  answer->wait();
  return answer;
}

}  // namespace shoal::server

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

template <typename T>
T value_of(Result<T> result) {
  CHECK_MSG(result.is_ok(), result.status().message().c_str());
  return std::move(result).value();
}

}  // namespace

const char* const ApiFixture::kPlainTemplate =
    "{% for m in messages %}{% if m.content == 'refuse' %}{{ raise_exception('not this') }}"
    "{% endif %}{{ m.role }}:{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant{{ suffix }}:{% endif %}";

const char* const ApiFixture::kToolTemplate =
    "{% if tools %}[{{ tools | tojson }}]\n{% endif %}{% for m in messages %}{{ m.role }}:"
    "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }} {{ c.id }} "
    "{{ c.function.arguments | tojson }}</tool_call>{% endfor %}"
    "{% if m.tool_call_id %}({{ m.tool_call_id }}){% endif %}{{ '\\n' }}{% endfor %}"
    "assistant:{% if enable_thinking %}<think>\n{% endif %}";

ApiFixture::ApiFixture(const char* chat_template, bool is_ready, EmbeddingFacts embedding)
    : source_(chat_template),
      tokenizer_(make_word_tokenizer({"▁one", "▁two", "▁three", "END"})),
      template_(
          value_of(text::ChatTemplate::parse(source_, text::chat_template_options(*tokenizer_)))),
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
                                .chat_template = source_},
                      .embedding = embedding_});
}

std::unique_ptr<HttpServer> ApiFixture::listen(HttpOptions options, AccessOptions access) const {
  options.port = 0;
  return value_of(HttpServer::listen(std::move(options), router_, Access(std::move(access))));
}

std::string ApiFixture::prompt(size_t index) {
  const auto request = generator_.requests(index + 1).at(index);
  std::string text = value_of(tokenizer_->decode(request.prompt));
  constexpr std::string_view kSpace = "▁";  // the bytes that this vocabulary spells a space with
  for (size_t at = text.find(kSpace); at != std::string::npos; at = text.find(kSpace, at)) {
    text.replace(at, kSpace.size(), " ");
  }
  return text;
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

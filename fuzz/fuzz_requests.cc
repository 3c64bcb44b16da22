// Any bytes as what clients send to the server: bodies of every API, paths, files of keys; and as
// what a model answers. The first byte chooses the parser. What is accepted keeps the promises that
// the routes rely on.
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "server/access/access.h"
#include "server/anthropic/message_request.h"
#include "server/embed/embed_request.h"
#include "server/http/message.h"
#include "server/ollama/ollama_request.h"
#include "server/openai/chat_request.h"
#include "server/openai/completion_request.h"
#include "server/responses/responses_request.h"
#include "text/answer_format/answer_format.h"

namespace {

using namespace shoal::server;  // NOLINT(google-build-using-namespace)

void check_options(const GenerationOptions& options) {
  CHECK(options.choices >= 1 && options.choices <= kChoicesMax);
  CHECK(options.logprobs_top <= shoal::runtime::GenerationRequest::kLogprobsTopMax);
  CHECK(options.wants_logprobs || options.logprobs_top == 0);
  CHECK(options.tokens_max.value_or(1) >= 1);
  CHECK(shoal::runtime::StopMatcher::create(options.stops).is_ok());
  CHECK(shoal::runtime::validate(options.sampling, size_t{1} << 31).is_ok());
}

void check_template_input(const Json& input) {
  CHECK(input.is_object() && input.contains("messages"));
  // Not nested too deep to be written, and valid.
  CHECK(!Json::parse(input.dump(), nullptr, false).is_discarded());
}

void feed_chat(std::string_view body) {
  auto request = parse_chat_request(body);
  if (!request.is_ok()) return;
  check_options(request->options);
  check_template_input(request->input.template_input);
  CHECK(!request->input.template_input["messages"].empty());
}

void feed_completion(std::string_view body) {
  auto request = parse_completion_request(body);
  if (!request.is_ok()) return;
  check_options(request->options);
  CHECK(!request->prompts.empty());
  CHECK(request->prompts.size() * request->options.choices <= kChoicesMax);
}

void feed_message(std::string_view body) {
  auto request = parse_message_request(body);
  if (request.is_ok()) {
    check_options(request->options);
    check_template_input(request->input.template_input);
  }
  auto counted = parse_count_request(body);
  if (counted.is_ok()) check_template_input(counted->input.template_input);
}

void feed_ollama(std::string_view body) {
  for (const auto parse : {parse_ollama_chat, parse_ollama_generate}) {
    auto request = parse(body);
    if (!request.is_ok()) continue;
    check_options(request->options);
    check_template_input(request->input.template_input);
  }
}

// What a model's answer says, in one text; where it was cut changes nothing.
std::string read_answer(std::string_view answer, shoal::text::CallFormat calls, size_t cut) {
  const auto parser = shoal::text::make_answer_parser(
      {.calls = calls, .thoughts = shoal::text::ThoughtFormat::kThink}, {.functions = {"f"}});
  shoal::text::AnswerEvents events;
  parser->push(answer.substr(0, cut), &events);
  parser->push(answer.substr(cut), &events);
  parser->finish(&events);
  std::string text;
  int last = -1;
  for (const auto& event : events) {
    const int kind = static_cast<int>(event.kind);
    if (kind != last || event.text.empty()) text += static_cast<char>('0' + kind);
    text += event.text;
    last = kind;
  }
  return text;
}

void feed_answer(std::string_view answer) {
  using shoal::text::CallFormat;
  for (const auto calls : {CallFormat::kHermes, CallFormat::kLlama3, CallFormat::kMistralNamed,
                           CallFormat::kDeepSeek, CallFormat::kHarmony}) {
    const std::string whole = read_answer(answer, calls, answer.size());
    CHECK(whole == read_answer(answer, calls, answer.size() / 2));
  }
}

void feed_responses(std::string_view body) {
  auto request = parse_responses_request(body);
  if (!request.is_ok()) return;
  check_options(request->options);
  check_template_input(request->input.template_input);
  CHECK(!request->input.template_input["messages"].empty());
  // What the answer repeats is JSON on one line, as an event needs it.
  for (const std::string* written :
       {&request->echo.text, &request->echo.tool_choice, &request->echo.tools}) {
    CHECK(Json::accept(*written) && written->find('\n') == std::string::npos);
  }
}

void feed_embed(std::string_view body) {
  for (const auto parse : {parse_openai_embed, parse_ollama_embed, parse_ollama_embeddings}) {
    auto request = parse(body);
    if (!request.is_ok()) continue;
    CHECK(request->texts.size() <= kTextsMax);
    CHECK(!request->texts.empty() || parse != parse_openai_embed);
    CHECK(request->dimensions.value_or(1) >= 1 && request->context_wanted.value_or(1) >= 1);
    for (const Prompt& text : request->texts) {
      CHECK(std::visit([](const auto& given) { return !given.empty(); }, text));
    }
  }
}

void feed_text(std::string_view text) {
  const auto decoded = percent_decode(text);
  CHECK(!decoded || decoded->size() <= text.size());
  const auto keys = ApiKeys::parse(text);
  CHECK(!keys.is_ok() || (keys->size() > 0 && !keys->contains("")));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view body(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0]) {
    case 'c':
      feed_chat(body);
      break;
    case 'p':
      feed_completion(body);
      break;
    case 'm':
      feed_message(body);
      break;
    case 'o':
      feed_ollama(body);
      break;
    case 'r':
      feed_responses(body);
      break;
    case 'e':
      feed_embed(body);
      break;
    case 'a':
      feed_answer(body);
      break;
    default:
      feed_text(body);
      break;
  }
  return 0;
}

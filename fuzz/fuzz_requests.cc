// Any bytes as what clients send to the server: bodies of every API, paths, files of keys; as what
// a model answers; and as its choices among what a grammar allows it to answer. The first byte
// chooses the parser. What is accepted keeps the promises that the routes rely on.
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "server/access/access.h"
#include "server/anthropic/message_request.h"
#include "server/embed/embed_request.h"
#include "server/http/message.h"
#include "server/ollama/ollama_request.h"
#include "server/openai/chat_request.h"
#include "server/openai/completion_request.h"
#include "server/responses/responses_request.h"
#include "server/testing/answer_walk.h"
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

using shoal::text::CallFormat;
using shoal::text::PromptThought;
using shoal::text::ThoughtFormat;

constexpr CallFormat kCallFormats[] = {CallFormat::kHermes,      CallFormat::kLlama3,
                                       CallFormat::kMistralList, CallFormat::kMistralNamed,
                                       CallFormat::kDeepSeek,    CallFormat::kDeepSeekFence,
                                       CallFormat::kHarmony};

// What a model's answer says, in one text.
std::string read_answer(const std::vector<std::string_view>& pieces, CallFormat calls,
                        bool are_calls_bound) {
  const auto parser =
      shoal::text::make_answer_parser({.calls = calls, .thoughts = ThoughtFormat::kThink},
                                      {.functions = {"f"}, .are_calls_bound = are_calls_bound});
  shoal::text::AnswerEvents events;
  for (const std::string_view piece : pieces) parser->push(piece, &events);
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

// Where an answer was cut changes nothing.
void feed_answer(std::string_view answer) {
  constexpr size_t kCutsMax = 64;
  std::vector<std::string_view> bytes;
  bytes.reserve(answer.size());
  for (size_t i = 0; i < answer.size(); ++i) bytes.push_back(answer.substr(i, 1));
  const size_t step = answer.size() / kCutsMax + 1;
  for (const CallFormat calls : kCallFormats) {
    for (const bool are_calls_bound : {false, true}) {
      const std::string whole = read_answer({answer}, calls, are_calls_bound);
      CHECK(whole == read_answer(bytes, calls, are_calls_bound));
      for (size_t cut = 0; cut < answer.size(); cut += step) {
        CHECK(whole ==
              read_answer({answer.substr(0, cut), answer.substr(cut)}, calls, are_calls_bound));
      }
    }
  }
}

// Every format's calls: with a thought before them, and with marks of both kinds.
std::vector<AnswerWalk::Options> walk_options() {
  std::vector<AnswerWalk::Options> all;
  for (const CallFormat calls : kCallFormats) {
    for (const auto thought : {PromptThought::kOptional, PromptThought::kOpen}) {
      for (const bool has_control_marks : {false, true}) {
        const bool is_harmony = calls == CallFormat::kHarmony;
        all.push_back(
            {.format = {.calls = calls,
                        .thoughts = is_harmony ? ThoughtFormat::kHarmony : ThoughtFormat::kThink},
             .thought = is_harmony ? PromptThought::kOptional : thought,
             .choice = calls == CallFormat::kLlama3 ? ToolChoice::kRequired : ToolChoice::kAuto,
             .has_control_marks = has_control_marks});
      }
    }
  }
  return all;
}

// What is streamed of an answer that its grammar allows is what the whole says. The first byte
// chooses the format, each of the others a token.
void feed_walk(std::string_view choices) {
  static const std::vector<AnswerWalk::Options> kOptions = walk_options();
  static std::map<size_t, AnswerWalk> walks;  // made when they are needed
  if (choices.empty()) return;
  const size_t index = static_cast<unsigned char>(choices[0]) % kOptions.size();
  const AnswerWalk& walk = walks.try_emplace(index, kOptions[index]).first->second;
  size_t at = 0;
  const auto pieces = walk.answer([&](size_t) -> std::optional<size_t> {
    if (++at >= choices.size()) return std::nullopt;
    return static_cast<unsigned char>(choices[at]);
  });
  if (!pieces) return;
  std::string whole;
  for (const std::string& piece : *pieces) whole += piece;
  CHECK_MSG(walk.read(*pieces, true) == walk.read({whole}, false), whole.c_str());
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
    case 'w':
      feed_walk(body);
      break;
    default:
      feed_text(body);
      break;
  }
  return 0;
}

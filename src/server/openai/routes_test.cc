#include "server/openai/routes.h"

#include <gmock/gmock.h>

#include "server/testing/api_fixture.h"

namespace shoal::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<runtime::TokenId>;

// A conversation of one message.
Json said(std::string_view role, Json content) {
  return Json::array({Json::object({{"role", role}, {"content", std::move(content)}})});
}

Json chat_body(const Json& extra = Json::object()) {
  Json json = {{"model", "tiny"}, {"messages", said("user", "hi")}};
  json.update(extra);
  return json;
}

class OpenAiRoutes : public ::testing::Test {
 protected:
  ApiFixture::Answer chat(const Json& extra = Json::object()) {
    return api_.call("POST", "/v1/chat/completions", chat_body(extra));
  }
  ApiFixture::Answer complete(const Json& extra = Json::object()) {
    Json json = {{"model", "tiny"}, {"prompt", "hi"}};
    json.update(extra);
    return api_.call("POST", "/v1/completions", json);
  }
  void answer_with(std::vector<Ids> answers) {
    api_.generator().answer_at_once(std::move(answers));
  }

  static std::string joined(const std::vector<Json>& events, int choice = 0) {
    std::string text;
    for (const Json& event : events) {
      for (const Json& entry : event["choices"]) {
        if (entry["index"] == choice) text += entry["delta"].value("content", "");
      }
    }
    return text;
  }

  ApiFixture api_;
  int32_t one_ = ApiFixture::word(0), two_ = ApiFixture::word(1), end_ = ApiFixture::word(3);
};

TEST_F(OpenAiRoutes, C55ModelsAreListedAndNamed) {
  const Json list = api_.call("GET", "/v1/models")->json();
  EXPECT_EQ(list["object"], "list");
  const Json& model = list["data"].at(0);
  EXPECT_EQ(model["id"], "tiny");
  EXPECT_EQ(model["object"], "model");
  EXPECT_TRUE(model["created"].is_number_integer());
  EXPECT_TRUE(model["owned_by"].is_string());
  EXPECT_EQ(api_.call("GET", "/v1/models/tiny")->json(), model);
  const auto other = api_.call("GET", "/v1/models/org/other");
  EXPECT_EQ(other->status(), 404);
  EXPECT_EQ(other->json()["error"]["code"], "model_not_found");
}

TEST_F(OpenAiRoutes, AChatIsRenderedAndAnswered) {
  answer_with({{one_, two_}});
  const auto answer = chat({{"chat_template_kwargs", {{"suffix", "!"}}}});
  ASSERT_EQ(answer->status(), 200) << answer->response().body;
  const Json json = answer->json();
  EXPECT_THAT(json["id"].get<std::string>(), ::testing::StartsWith("chatcmpl-"));
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["system_fingerprint"], "fp-test");
  const Json& choice = json["choices"].at(0);
  EXPECT_EQ(choice["message"]["content"], " one two");
  EXPECT_EQ(choice["message"]["role"], "assistant");
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_TRUE(choice["logprobs"].is_null());
  const std::string prompt = "user:hi\nassistant!:";
  EXPECT_EQ(json["usage"]["prompt_tokens"], prompt.size() + 1);
  EXPECT_EQ(json["usage"]["completion_tokens"], 2);
  EXPECT_EQ(json["usage"]["total_tokens"], prompt.size() + 3);
  Ids expected = {1};
  for (const int32_t id : byte_tokens(prompt)) expected.push_back(id);
  EXPECT_EQ(api_.generator().requests(1)[0].prompt, expected);
}

TEST_F(OpenAiRoutes, AStreamHasARoleTextAnEndAndUsageWhenItIsAskedFor) {
  answer_with({{one_, two_}});
  const auto answer = chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}});
  EXPECT_THAT(answer->streamed(), ::testing::EndsWith("data: [DONE]\n\n"));
  const std::vector<Json> events = answer->events();
  ASSERT_GE(events.size(), 4U);
  EXPECT_EQ(events.front()["object"], "chat.completion.chunk");
  EXPECT_EQ(events.front()["choices"][0]["delta"]["role"], "assistant");
  EXPECT_TRUE(events.front()["usage"].is_null());
  EXPECT_EQ(joined(events), " one two");
  const Json& last = events[events.size() - 2]["choices"][0];
  EXPECT_EQ(last["finish_reason"], "stop");
  EXPECT_EQ(last["delta"], Json::object());
  EXPECT_EQ(events.back()["choices"], Json::array());
  EXPECT_EQ(events.back()["usage"]["completion_tokens"], 2);
  for (const Json& event : events) EXPECT_EQ(event["id"], events.front()["id"]);
}

TEST_F(OpenAiRoutes, AStreamWithoutUsageDoesNotNameIt) {
  answer_with({{one_}});
  for (const Json& event : chat({{"stream", true}})->events())
    EXPECT_FALSE(event.contains("usage"));
}

TEST_F(OpenAiRoutes, C36WithoutATemplateChatsAreRefusedAndPlainTextIsContinued) {
  ApiFixture api(false);
  api.service().set_ready({.tokenizer = &api.tokenizer(),
                           .no_chat = "no template: use /v1/completions",
                           .grammars = &api.grammars(),
                           .generator = &api.generator(),
                           .context = ScriptedGenerator::kContext});
  api.generator().answer_at_once({{one_}});
  const auto refused = api.call("POST", "/v1/chat/completions", chat_body());
  EXPECT_EQ(refused->status(), 400);
  const Json error = refused->json()["error"];
  EXPECT_EQ(error["message"], "no template: use /v1/completions");
  EXPECT_EQ(error["type"], "invalid_request_error");
  EXPECT_EQ(error["code"], "no_chat_template");
  const auto continued = api.call("POST", "/v1/completions", {{"model", "tiny"}, {"prompt", "hi"}});
  ASSERT_EQ(continued->status(), 200) << continued->response().body;
  EXPECT_EQ(continued->json()["choices"][0]["text"], " one");
}

TEST_F(OpenAiRoutes, C40AStreamAndAWholeAnswerHaveTheSameBytes) {
  const std::string text = "👩‍👩‍👧‍👦 漢字 e\u0301";
  answer_with({byte_tokens(text)});
  EXPECT_EQ(chat()->json()["choices"][0]["message"]["content"], text);
  EXPECT_EQ(joined(chat({{"stream", true}})->events()), text);
}

TEST_F(OpenAiRoutes, C40ATruncatedCharacterIsOneReplacementInBothModes) {
  answer_with({byte_tokens("a👍")});
  const Json limit = {{"max_tokens", 3}};
  EXPECT_EQ(chat(limit)->json()["choices"][0]["message"]["content"], "a\xEF\xBF\xBD");
  EXPECT_EQ(chat(limit)->json()["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(joined(chat({{"max_tokens", 3}, {"stream", true}})->events()), "a\xEF\xBF\xBD");
}

TEST_F(OpenAiRoutes, C41LogprobsHaveTheBytesOfEveryToken) {
  answer_with({byte_tokens("é"), byte_tokens("é")});
  const Json whole = chat({{"logprobs", true}, {"top_logprobs", 2}})->json();
  std::vector<Json> streamed;
  const auto stream = chat({{"logprobs", true}, {"top_logprobs", 2}, {"stream", true}});
  for (const Json& event : stream->events()) {
    const Json& logprobs = event["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    for (const Json& token : logprobs["content"]) streamed.push_back(token);
  }
  const Json& content = whole["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(Json(streamed), content);
  EXPECT_EQ(content[0]["bytes"], Json({0xC3}));
  EXPECT_EQ(content[1]["bytes"], Json({0xA9}));
  EXPECT_EQ(content[0]["token"], "\\xc3");
  EXPECT_EQ(content[0]["logprob"], -0.25);
  ASSERT_EQ(content[0]["top_logprobs"].size(), 2U);
  EXPECT_EQ(content[0]["top_logprobs"][0]["bytes"], Json({0xC3}));
  EXPECT_GE(content[0]["top_logprobs"][0]["logprob"], content[0]["top_logprobs"][1]["logprob"]);
}

TEST_F(OpenAiRoutes, C43ATextThatBeginsAStopIsDeliveredWhole) {
  answer_with({{one_, two_}});
  const Json stop = {{"stop", "twoQZX"}};
  EXPECT_EQ(chat(stop)->json()["choices"][0]["message"]["content"], " one two");
  EXPECT_EQ(joined(chat({{"stop", "twoQZX"}, {"stream", true}})->events()), " one two");
}

TEST_F(OpenAiRoutes, C43ALongStopDoesNotDelayTheFirstPiece) {
  const auto answer =
      api_.start("POST", "/v1/chat/completions",
                 chat_body({{"stream", true}, {"stop", std::string(500, 'x')}}).dump());
  api_.generator().requests(1);
  api_.generator().give(0, one_);
  answer->wait_for(" one");
  api_.generator().finish(0, runtime::StopReason::kEndOfGeneration);
  answer->wait();
}

TEST_F(OpenAiRoutes, AStopStringEndsTheAnswerBeforeIt) {
  answer_with({{one_, end_, two_}});
  const Json json = chat({{"stop", {"END"}}})->json();
  EXPECT_EQ(json["choices"][0]["message"]["content"], " one");
  EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
}

TEST_F(OpenAiRoutes, C47AnEmptyContentIsAnsweredAndNoMessageIsRefused) {
  answer_with({{one_}});
  EXPECT_EQ(chat({{"messages", said("user", "")}})->status(), 200);
  EXPECT_EQ(chat({{"messages", Json::array()}})->status(), 400);
}

TEST_F(OpenAiRoutes, C47CompletionPromptsInAllTheirForms) {
  answer_with({{one_}, {two_}});
  const Json two = complete({{"prompt", {"a", "b"}}})->json();
  ASSERT_EQ(two["choices"].size(), 2U);
  EXPECT_EQ(two["choices"][0]["index"], 0);
  EXPECT_EQ(two["choices"][0]["text"], " one");
  EXPECT_EQ(two["choices"][1]["text"], " two");
  EXPECT_EQ(two["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(complete({{"prompt", ""}})->status(), 200);  // from BOS
  EXPECT_EQ(complete({{"prompt", {5, 6, 7}}})->status(), 200);
  EXPECT_THAT(api_.generator().requests(4)[3].prompt, ElementsAre(5, 6, 7));
  const auto outside = complete({{"prompt", {5, 1'000'000}}});
  EXPECT_EQ(outside->status(), 400);
  EXPECT_EQ(outside->json()["error"]["param"], "prompt");
}

TEST_F(OpenAiRoutes, C51EveryChoiceHasItsIndexAndThePromptIsCountedOnce) {
  answer_with({{one_}, {two_}, {one_, two_}});
  const Json json = chat({{"n", 3}, {"seed", 1}})->json();
  ASSERT_EQ(json["choices"].size(), 3U);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(json["choices"][i]["index"], i);
  EXPECT_EQ(json["choices"][1]["message"]["content"], " two");
  EXPECT_EQ(json["usage"]["completion_tokens"], 4);
  EXPECT_EQ(json["usage"]["prompt_tokens"], api_.generator().requests(3)[0].prompt.size());
  EXPECT_EQ(api_.generator().requests(3)[2].sampling.seed, 3U);
}

TEST_F(OpenAiRoutes, C51AStreamOfSeveralChoicesEndsEachOnce) {
  answer_with({{one_}, {two_}});
  const std::vector<Json> events = chat({{"n", 2}, {"stream", true}})->events();
  EXPECT_EQ(joined(events, 0), " one");
  EXPECT_EQ(joined(events, 1), " two");
  std::vector<int> ends(2);
  for (const Json& event : events) {
    const Json& choice = event["choices"][0];
    if (!choice["finish_reason"].is_null()) ++ends.at(choice["index"].get<size_t>());
  }
  EXPECT_THAT(ends, ElementsAre(1, 1));
}

TEST_F(OpenAiRoutes, CompletionsHaveLogprobsOffsetsAndEchoes) {
  answer_with({{one_, byte_token(0xC3), byte_token(0xA9), two_}});
  const Json json = complete({{"logprobs", 1}})->json()["choices"][0];
  EXPECT_EQ(json["text"], " oneé two");
  EXPECT_EQ(json["logprobs"]["tokens"], Json({" one", "bytes:\\xc3", "bytes:\\xa9", " two"}));
  EXPECT_EQ(json["logprobs"]["text_offset"], Json({0, 4, 5, 5}));
  EXPECT_EQ(json["logprobs"]["top_logprobs"][0], Json({{" one", -0.25}}));
  EXPECT_EQ(complete({{"echo", true}})->json()["choices"][0]["text"], "hi oneé two");
}

TEST_F(OpenAiRoutes, TheLimitOfACompletionIsSixteenTokensUnlessSaid) {
  answer_with({Ids(50, one_)});
  EXPECT_EQ(complete()->json()["usage"]["completion_tokens"], 16);
  EXPECT_EQ(complete({{"max_tokens", 20}})->json()["usage"]["completion_tokens"], 20);
  EXPECT_EQ(complete()->json()["choices"][0]["finish_reason"], "length");
}

TEST_F(OpenAiRoutes, ErrorsSayWhatAndWhere) {
  const auto model = chat({{"model", "other"}});
  EXPECT_EQ(model->status(), 404);
  EXPECT_EQ(model->json()["error"]["code"], "model_not_found");
  const auto refused = chat({{"messages", said("user", "refuse")}});
  EXPECT_EQ(refused->status(), 400);
  EXPECT_THAT(refused->json()["error"]["message"].get<std::string>(), HasSubstr("not this"));
  const auto bias = chat({{"logit_bias", {{"99999", 1}}}});
  EXPECT_EQ(bias->status(), 400);
  EXPECT_EQ(bias->json()["error"]["param"], "logit_bias");
  const auto is_long = chat({{"messages", said("user", std::string(2000, 'x'))}});
  EXPECT_EQ(is_long->status(), 400);
  EXPECT_EQ(is_long->json()["error"]["code"], "context_length_exceeded");
}

TEST_F(OpenAiRoutes, AFullQueueIs429AndABrokenEngine503) {
  api_.generator().refuse_after(0, Status::busy("the queue is full"));
  const auto full = chat({{"stream", true}});
  EXPECT_EQ(full->status(), 429);
  EXPECT_EQ(find_header(full->response().headers, "Retry-After"), "3");
  api_.generator().refuse_after(0, Status::group("rank 1 left"));
  EXPECT_EQ(chat()->status(), 503);
  EXPECT_EQ(api_.service().phase(), Service::Phase::kFailed);
  EXPECT_THAT(chat()->json()["error"]["message"].get<std::string>(), HasSubstr("rank 1 left"));
}

TEST_F(OpenAiRoutes, AnAnswerThatBreaksOffSaysSoInBothModes) {
  for (const bool is_stream : {false, true}) {
    ApiFixture api;
    const auto answer =
        api.start("POST", "/v1/chat/completions", chat_body({{"stream", is_stream}}).dump());
    api.generator().requests(1);
    api.generator().give(0, one_);
    api.generator().fail(0, Status::group("rank 1 left"));
    answer->wait();
    const Json error = is_stream ? answer->events().back() : answer->json();
    EXPECT_THAT(error["error"]["message"].get<std::string>(), HasSubstr("rank 1 left"));
    EXPECT_EQ(answer->streamed().find("[DONE]"), std::string::npos);
    EXPECT_EQ(api.service().phase(), Service::Phase::kFailed);
  }
}

TEST_F(OpenAiRoutes, AClientThatGoesCancelsItsRequest) {
  const auto answer =
      api_.start("POST", "/v1/chat/completions", chat_body({{"stream", true}}).dump());
  api_.generator().requests(1);
  answer->leave();
  EXPECT_TRUE(api_.generator().was_cancelled(0));
  api_.generator().finish(0, runtime::StopReason::kCancelled);
  answer->wait();
}

TEST_F(OpenAiRoutes, C62AStopThatTheFirstTokenCompletesLeavesNoTextAndNoLogprobs) {
  Ids ids = byte_tokens("\n");
  ids.push_back(two_);
  answer_with({ids});
  const auto answer = complete(
      {{"prompt", "Q: hello world \nA: "}, {"stop", "\n"}, {"temperature", 0}, {"logprobs", 10}});
  ASSERT_EQ(answer->status(), 200) << answer->response().body;
  const Json choice = answer->json()["choices"][0];
  EXPECT_EQ(choice["text"], "");
  EXPECT_EQ(choice["finish_reason"], "stop");
  for (const char* list : {"tokens", "token_logprobs", "top_logprobs", "text_offset"}) {
    EXPECT_EQ(choice["logprobs"][list], Json::array()) << list;
  }
  Json options = {{"stop", "\n"}, {"temperature", 0}, {"logprobs", true}, {"top_logprobs", 10}};
  const Json whole = chat(options)->json()["choices"][0];
  EXPECT_EQ(whole["message"]["content"], "");
  EXPECT_EQ(whole["finish_reason"], "stop");
  EXPECT_EQ(whole["logprobs"]["content"], Json::array());
  options["stream"] = true;
  const std::vector<Json> events = chat(options)->events();
  EXPECT_EQ(joined(events), "");
  EXPECT_EQ(events.back()["choices"][0]["finish_reason"], "stop");
  for (const Json& event : events) {
    const Json& logprobs = event["choices"][0]["logprobs"];
    EXPECT_TRUE(logprobs.is_null() || logprobs["content"] == Json::array()) << event;
  }
}

TEST_F(OpenAiRoutes, C53WhileLoadingRequestsAreToldToComeBack) {
  ApiFixture loading(false);
  const auto answer = loading.call("POST", "/v1/chat/completions", chat_body());
  EXPECT_EQ(answer->status(), 503);
  EXPECT_TRUE(find_header(answer->response().headers, "Retry-After").has_value());
  EXPECT_EQ(loading.call("GET", "/v1/models")->status(), 200);
}

TEST_F(OpenAiRoutes, TheAnswersOfARequestFollowItsGrammar) {
  answer_with({{one_}});
  const Json format = {{"type", "json_schema"},
                       {"json_schema", {{"name", "n"}, {"schema", {{"type", "null"}}}}}};
  EXPECT_EQ(chat({{"n", 2}, {"response_format", format}})->status(), 200);
  EXPECT_EQ(complete({{"prompt", {"a", "b"}}, {"guided_choice", {"x", "y"}}})->status(), 200);
  EXPECT_EQ(complete()->status(), 200);
  const auto requests = api_.generator().requests(5);
  for (const size_t i : {0, 1}) {
    const auto constraint = requests[i].grammar->start();
    EXPECT_TRUE(constraint->allowed()->allows(byte_token('n')));
    EXPECT_FALSE(constraint->allowed()->allows(one_));
  }
  EXPECT_TRUE(requests[3].grammar->start()->allowed()->allows(byte_token('y')));
  EXPECT_EQ(requests[4].grammar, nullptr);
}

TEST_F(OpenAiRoutes, C52AFormatThatCannotBeEnforcedIsRefusedWithTheReason) {
  const Json schema = {{"properties", {{"a", {{"not", Json::object()}}}}}};
  const Json format = {{"type", "json_schema"}, {"json_schema", {{"schema", schema}}}};
  const auto answer = chat({{"response_format", format}});
  EXPECT_EQ(answer->status(), 400);
  const Json error = answer->json()["error"];
  EXPECT_EQ(error["param"], "response_format");
  EXPECT_THAT(error["message"].get<std::string>(), HasSubstr("#/properties/a/not: \"not\""));
  EXPECT_EQ(complete({{"guided_regex", "(a"}})->json()["error"]["param"], "guided_regex");
  EXPECT_TRUE(api_.generator().requests(0).empty());
}

}  // namespace
}  // namespace shoal::server

#include "server/responses/routes.h"

#include <gmock/gmock.h>

#include "server/testing/api_fixture.h"

namespace shoal::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<runtime::TokenId>;

class ResponsesRoute : public ::testing::Test {
 protected:
  ResponsesRoute() { api_.generator().answer_at_once({Ids{one_, two_}}); }

  static Json body(const Json& extra) {
    Json json = {{"model", "tiny"}, {"input", "hi"}};
    json.update(extra);
    return json;
  }
  ApiFixture::Answer send(const Json& extra = Json::object()) {
    return api_.call("POST", "/v1/responses", body(extra));
  }

  ApiFixture api_;
  int32_t one_ = ApiFixture::word(0), two_ = ApiFixture::word(1);
};

TEST_F(ResponsesRoute, AnInputIsAnswered) {
  const auto answer = send({{"instructions", "brief"}, {"metadata", {{"a", "b"}}}});
  ASSERT_EQ(answer->status(), 200) << answer->response().body;
  const Json json = answer->json();
  EXPECT_EQ(json["object"], "response");
  EXPECT_THAT(json["id"].get<std::string>(), HasSubstr("resp_"));
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_TRUE(json["error"].is_null());
  EXPECT_TRUE(json["incomplete_details"].is_null());
  ASSERT_EQ(json["output"].size(), 1U);
  const Json& message = json["output"][0];
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["status"], "completed");
  EXPECT_EQ(message["content"], Json::array({Json::object({{"type", "output_text"},
                                                           {"text", " one two"},
                                                           {"annotations", Json::array()},
                                                           {"logprobs", Json::array()}})}));
  const size_t prompt = std::string("system:brief\nuser:hi\nassistant:").size() + 1;
  EXPECT_EQ(json["usage"]["input_tokens"], prompt);
  EXPECT_EQ(json["usage"]["output_tokens"], 2);
  EXPECT_EQ(json["usage"]["total_tokens"], prompt + 2);
  EXPECT_EQ(json["usage"]["input_tokens_details"]["cached_tokens"], 0);
  EXPECT_EQ(json["metadata"], Json({{"a", "b"}}));
  EXPECT_EQ(json["instructions"], "brief");
  EXPECT_EQ(json["store"], false);
}

TEST_F(ResponsesRoute, TheLimitLeavesAResponseIncomplete) {
  const Json json = send({{"max_output_tokens", 1}})->json();
  EXPECT_EQ(json["status"], "incomplete");
  EXPECT_EQ(json["incomplete_details"], Json({{"reason", "max_output_tokens"}}));
  EXPECT_EQ(json["output"][0]["status"], "incomplete");
  EXPECT_EQ(json["output"][0]["content"][0]["text"], " one");
  EXPECT_EQ(json["max_output_tokens"], 1);
}

TEST_F(ResponsesRoute, AStreamHasTheDocumentedEventsInOrder) {
  const auto answer = send({{"stream", true}});
  const auto events = answer->named_events();
  std::vector<std::string> names;
  for (const auto& [name, data] : events) {
    EXPECT_EQ(data["type"], name);
    EXPECT_EQ(data["sequence_number"], names.size());
    names.push_back(name);
  }
  std::string text;
  std::erase_if(names, [](const std::string& name) { return name.ends_with(".delta"); });
  EXPECT_THAT(names, ElementsAre("response.created", "response.in_progress",
                                 "response.output_item.added", "response.content_part.added",
                                 "response.output_text.done", "response.content_part.done",
                                 "response.output_item.done", "response.completed"));
  const std::string item = events[2].second["item"]["id"];
  for (const auto& [name, data] : events) {
    if (data.contains("item_id")) EXPECT_EQ(data["item_id"], item);
    if (name == "response.output_text.delta") text += data["delta"];
    if (name == "response.output_text.done") EXPECT_EQ(data["text"], " one two");
  }
  EXPECT_EQ(text, " one two");
  EXPECT_EQ(events[0].second["response"]["status"], "in_progress");
  EXPECT_EQ(events[0].second["response"]["output"], Json::array());
  EXPECT_EQ(events[2].second["item"]["content"], Json::array());
  Json last = events.back().second["response"];
  EXPECT_EQ(last["id"], events[0].second["response"]["id"]);
  EXPECT_EQ(last["output"][0]["id"], item);
  // The same as a whole answer has.
  Json whole = send()->json();
  for (Json* json : {&last, &whole}) {
    for (const char* name : {"id", "created_at", "completed_at"}) json->erase(name);
    (*json)["output"][0].erase("id");
  }
  EXPECT_EQ(last, whole);
}

TEST_F(ResponsesRoute, AStreamThatReachesTheLimitEndsIncomplete) {
  const auto events = send({{"stream", true}, {"max_output_tokens", 1}})->named_events();
  EXPECT_EQ(events.back().first, "response.incomplete");
  EXPECT_EQ(events.back().second["response"]["incomplete_details"]["reason"], "max_output_tokens");
}

TEST_F(ResponsesRoute, LogprobsComeWhereTheyAreAskedFor) {
  const Json wanted = {{"include", {"message.output_text.logprobs"}}, {"top_logprobs", 2}};
  const Json part = send(wanted)->json()["output"][0]["content"][0];
  ASSERT_EQ(part["logprobs"].size(), 2U);
  EXPECT_EQ(part["logprobs"][0]["token"], " one");
  EXPECT_EQ(part["logprobs"][0]["logprob"], -0.25);
  EXPECT_EQ(part["logprobs"][0]["top_logprobs"].size(), 2U);
  Json streamed = wanted;
  streamed["stream"] = true;
  size_t tokens = 0;
  for (const auto& [name, data] : send(streamed)->named_events()) {
    if (name == "response.output_text.delta") tokens += data["logprobs"].size();
    if (name == "response.output_text.done") EXPECT_EQ(data["logprobs"], part["logprobs"]);
  }
  EXPECT_EQ(tokens, 2U);
}

TEST_F(ResponsesRoute, ErrorsNameWhatIsWrong) {
  const auto answer = send({{"previous_response_id", "resp_1"}});
  EXPECT_EQ(answer->status(), 400);
  EXPECT_EQ(answer->json()["error"]["param"], "previous_response_id");
  EXPECT_EQ(send({{"model", "other"}})->status(), 404);
  const auto refused = send({{"input", "refuse"}});
  EXPECT_EQ(refused->json()["error"]["param"], "input");
  EXPECT_THAT(refused->json()["error"]["message"].get<std::string>(), HasSubstr("not this"));
  const auto too_long = send({{"input", std::string(ScriptedGenerator::kContext, 'x')}});
  EXPECT_EQ(too_long->json()["error"]["code"], "context_length_exceeded");
  EXPECT_EQ(too_long->json()["error"]["param"], "input");
  api_.generator().refuse_after(0, Status::busy("full"));
  EXPECT_EQ(send()->status(), 429);
}

TEST_F(ResponsesRoute, AnAnswerThatBreaksOffHasFailed) {
  for (const bool is_stream : {false, true}) {
    ApiFixture api;
    const auto answer = api.start("POST", "/v1/responses", body({{"stream", is_stream}}).dump());
    api.generator().requests(1);
    api.generator().give(0, one_);
    api.generator().fail(0, Status::group("rank 1 left"));
    answer->wait();
    if (!is_stream) {
      EXPECT_EQ(answer->status(), 503);
      continue;
    }
    const auto [name, data] = answer->named_events().back();
    EXPECT_EQ(name, "response.failed");
    EXPECT_EQ(data["response"]["status"], "failed");
    EXPECT_EQ(data["response"]["error"]["code"], "server_error");
    EXPECT_THAT(data["response"]["error"]["message"].get<std::string>(), HasSubstr("rank 1 left"));
  }
}

TEST_F(ResponsesRoute, AClientThatGoesEndsItsAnswer) {
  ApiFixture api;
  const auto answer = api.start("POST", "/v1/responses", body({{"stream", true}}).dump());
  api.generator().requests(1);
  answer->leave();
  EXPECT_TRUE(api.generator().was_cancelled(0));
  api.generator().finish(0, runtime::StopReason::kCancelled);
  answer->wait();
}

}  // namespace
}  // namespace shoal::server

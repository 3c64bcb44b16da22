#include "server/anthropic/routes.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "server/testing/api_fixture.h"
#include "server/testing/raw_client.h"

namespace shoal::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Ids = std::vector<runtime::TokenId>;

Json body(const Json& extra = Json::object()) {
  Json json = {{"model", "tiny"},
               {"max_tokens", 10},
               {"messages", Json::array({Json::object({{"role", "user"}, {"content", "hi"}})})}};
  json.update(extra);
  return json;
}

class AnthropicRoutes : public ::testing::Test {
 protected:
  ApiFixture::Answer send(const Json& extra = Json::object()) {
    return api_.call("POST", "/v1/messages", body(extra));
  }
  void refuse(const Json& extra, std::string_view words) {
    const auto answer = send(extra);
    EXPECT_EQ(answer->status(), 400) << extra;
    EXPECT_EQ(answer->json()["type"], "error");
    EXPECT_EQ(answer->json()["error"]["type"], "invalid_request_error");
    EXPECT_THAT(answer->json()["error"]["message"].get<std::string>(),
                HasSubstr(std::string(words)));
  }

  ApiFixture api_;
  int32_t one_ = ApiFixture::word(0), two_ = ApiFixture::word(1), end_ = ApiFixture::word(3);
};

TEST_F(AnthropicRoutes, AMessageIsAnswered) {
  api_.generator().answer_at_once({Ids{one_, two_}});
  const auto answer = send({{"system", "brief"}, {"top_k", 5}, {"temperature", 0.5}});
  ASSERT_EQ(answer->status(), 200) << answer->response().body;
  const Json json = answer->json();
  EXPECT_EQ(json["type"], "message");
  EXPECT_EQ(json["role"], "assistant");
  EXPECT_EQ(json["content"], Json::array({Json::object({{"type", "text"}, {"text", " one two"}})}));
  EXPECT_EQ(json["stop_reason"], "end_turn");
  EXPECT_TRUE(json["stop_sequence"].is_null());
  const std::string prompt = "system:brief\nuser:hi\nassistant:";
  EXPECT_EQ(json["usage"]["input_tokens"], prompt.size() + 1);
  EXPECT_EQ(json["usage"]["output_tokens"], 2);
  const auto request = api_.generator().requests(1)[0];
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.sampling.temperature, 0.5F);
  EXPECT_EQ(request.tokens_max, 10U);
}

TEST_F(AnthropicRoutes, AStreamHasTheDocumentedEvents) {
  api_.generator().answer_at_once({Ids{one_, two_}});
  const auto answer = send({{"stream", true}, {"max_tokens", 1}});
  const auto all = answer->named_events();
  std::vector<std::string> names;
  for (const auto& [name, data] : all) {
    names.push_back(name);
    EXPECT_EQ(data["type"], name);
  }
  EXPECT_THAT(names, ElementsAre("message_start", "content_block_start", "content_block_delta",
                                 "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(all[0].second["message"]["content"], Json::array());
  EXPECT_GT(all[0].second["message"]["usage"]["input_tokens"], 0);
  EXPECT_EQ(all[2].second["delta"], Json({{"type", "text_delta"}, {"text", " one"}}));
  EXPECT_EQ(all[4].second["delta"]["stop_reason"], "max_tokens");
  EXPECT_EQ(all[4].second["usage"]["output_tokens"], 1);
}

TEST_F(AnthropicRoutes, AStopSequenceIsNamed) {
  api_.generator().answer_at_once({Ids{one_, end_, two_}});
  const Json json = send({{"stop_sequences", {"END", "x"}}})->json();
  EXPECT_EQ(json["content"][0]["text"], " one");
  EXPECT_EQ(json["stop_reason"], "stop_sequence");
  EXPECT_EQ(json["stop_sequence"], "END");
}

TEST_F(AnthropicRoutes, BlocksOfTextAreJoined) {
  api_.generator().answer_at_once({Ids{one_}});
  const Json text = {{"type", "text"}, {"text", "a"}, {"cache_control", {{"type", "ephemeral"}}}};
  const Json user = {{"role", "user"}, {"content", Json::array({text, text})}};
  EXPECT_EQ(send({{"messages", Json::array({user})}})->status(), 200);
  const std::string prompt = "user:a\na\nassistant:";
  EXPECT_EQ(api_.generator().requests(1)[0].prompt.size(), prompt.size() + 1);
}

TEST_F(AnthropicRoutes, TokensAreCountedWithoutAnAnswer) {
  Json request = body();
  request.erase("max_tokens");
  const std::string prompt = "user:hi\nassistant:";
  EXPECT_EQ(api_.call("POST", "/v1/messages/count_tokens", request)->json(),
            Json({{"input_tokens", prompt.size() + 1}}));
  EXPECT_TRUE(api_.generator().requests(0).empty());
  EXPECT_EQ(api_.call("POST", "/v1/messages/count_tokens", body())->status(), 400);
}

TEST_F(AnthropicRoutes, WhatIsWrongOrNotServedIsRefusedByName) {
  refuse({{"max_tokens", nullptr}}, "max_tokens");
  refuse({{"max_tokens", 0}}, "max_tokens");
  refuse({{"messages", Json::array()}}, "messages");
  refuse({{"temperature", 1.5}}, "temperature");
  refuse({{"stop_sequences", {""}}}, "stop_sequences");
  refuse({{"tools", Json::array({Json::object({{"name", "f"}})})}}, "tools");
  refuse({{"tool_choice", {{"type", "any"}}}}, "tool_choice");
  refuse({{"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}}, "does not think");
  refuse({{"bogus", 1}}, "bogus");
  const Json clear = {{"type", "clear_tool_uses_20250919"}};
  refuse({{"context_management", {{"edits", Json::array({clear})}}}}, "context_management");
  refuse({{"messages", Json::array({Json::object({{"role", "user"}, {"content", "hi"}}),
                                    Json::object({{"role", "assistant"}, {"content", "{"}})})}},
         "messages: must end");
  const Json image = {{"type", "image"}, {"source", Json::object()}};
  refuse({{"messages",
           Json::array({Json::object({{"role", "user"}, {"content", Json::array({image})}})})}},
         "image");
}

TEST_F(AnthropicRoutes, WhatClaudeCodeSendsByItselfIsTaken) {
  api_.generator().answer_at_once({Ids{one_}});
  const Json keep = {{"type", "clear_thinking_20251015"}, {"keep", "all"}};
  const auto answer = send({{"context_management", {{"edits", Json::array({keep})}}},
                            {"thinking", {{"type", "adaptive"}, {"display", "omitted"}}}});
  EXPECT_EQ(answer->status(), 200) << answer->response().body;
}

TEST_F(AnthropicRoutes, AnOutputFormatIsWhatTheAnswerFollows) {
  api_.generator().answer_at_once({Ids{one_}});
  const Json format = {{"type", "json_schema"}, {"schema", {{"type", "null"}}}};
  EXPECT_EQ(send({{"output_format", format}})->status(), 200);
  EXPECT_EQ(send({{"output_config", {{"format", format}}}})->status(), 200);
  for (const auto& request : api_.generator().requests(2)) {
    EXPECT_TRUE(request.grammar->start()->allowed()->allows(byte_token('n')));
  }
  refuse({{"output_format", {{"type", "json_schema"}, {"schema", {{"type", "objekt"}}}}}},
         "output_format");
}

TEST(AnthropicEffort, GoesToATemplateThatReadsItWithOrWithoutThoughts) {
  ApiFixture api(
      "{% for m in messages %}{{ m.content }}{% endfor %}[{{ reasoning_effort or 'none' }}]");
  api.generator().answer_at_once({Ids{ApiFixture::word(0)}});
  size_t requests = 0;
  for (const char* effort : {"low", "medium", "high", "xhigh", "max"}) {
    for (const char* type : {"disabled", "adaptive"}) {
      const Json extra = {{"output_config", {{"effort", effort}}}, {"thinking", {{"type", type}}}};
      EXPECT_EQ(api.call("POST", "/v1/messages", body(extra))->status(), 200);
      EXPECT_EQ(api.prompt(requests++), fmt::format("hi[{}]", effort));
    }
  }
  EXPECT_EQ(api.call("POST", "/v1/messages", body())->status(), 200);
  EXPECT_EQ(api.prompt(requests), "hi[none]");
  Json count = body({{"output_config", {{"effort", "low"}}}});
  count.erase("max_tokens");
  EXPECT_EQ(api.call("POST", "/v1/messages/count_tokens", count)->json()["input_tokens"],
            std::string("hi[low]").size() + 1);
}

TEST(AnthropicEffort, IsTakenWhereTheModelThinksAndRefusedWhereNothingDependsOnIt) {
  const auto status_of = [](const char* source, const char* effort, const char* type) {
    ApiFixture api(source);
    api.generator().answer_at_once({Ids{ApiFixture::word(0)}});
    const auto answer =
        api.call("POST", "/v1/messages",
                 body({{"output_config", {{"effort", effort}}}, {"thinking", {{"type", type}}}}));
    if (answer->status() != 200) {
      EXPECT_THAT(answer->json()["error"]["message"].get<std::string>(),
                  HasSubstr("output_config.effort"));
    }
    return answer->status();
  };
  EXPECT_EQ(status_of(ApiFixture::kToolTemplate, "low", "adaptive"), 200);
  EXPECT_EQ(status_of(ApiFixture::kToolTemplate, "low", "disabled"), 400);
  EXPECT_EQ(status_of(ApiFixture::kPlainTemplate, "low", "adaptive"), 400);
  EXPECT_EQ(status_of(ApiFixture::kPlainTemplate, "max", "disabled"), 400);
  EXPECT_EQ(status_of(ApiFixture::kPlainTemplate, "high", "disabled"), 200);
  EXPECT_EQ(status_of(ApiFixture::kToolTemplate, "extreme", "adaptive"), 400);
}

TEST_F(AnthropicRoutes, FieldsThatChangeNothingHereAreTaken) {
  api_.generator().answer_at_once({Ids{one_}});
  const Json tool = {{"name", "f"},
                     {"input_schema", Json::object()},
                     {"eager_input_streaming", true},
                     {"defer_loading", false},
                     {"allowed_callers", {"direct"}}};
  const auto answer = send({{"cache_control", {{"type", "ephemeral"}, {"ttl", "1h"}}},
                            {"speed", "standard"},
                            {"tools", Json::array({tool})}});
  EXPECT_EQ(answer->status(), 200) << answer->response().body;
  refuse({{"speed", "fast"}}, "speed");
  refuse({{"diagnostics", Json::object()}}, "diagnostics");
  for (const Json& field :
       {Json({{"defer_loading", true}}), Json({{"input_examples", Json::array({Json::object()})}}),
        Json({{"allowed_callers", {"code_execution_20260120"}}})}) {
    Json changed = tool;
    changed.update(field);
    refuse({{"tools", Json::array({changed})}}, field.begin().key());
  }
}

TEST_F(AnthropicRoutes, ErrorsHaveTheTypesOfTheirStatuses) {
  EXPECT_EQ(send({{"model", "other"}})->status(), 404);
  EXPECT_EQ(send({{"model", "other"}})->json()["error"]["type"], "not_found_error");
  api_.generator().refuse_after(0, Status::busy("full"));
  EXPECT_EQ(send()->status(), 429);
  EXPECT_EQ(send()->json()["error"]["type"], "rate_limit_error");
}

TEST_F(AnthropicRoutes, ErrorsThatNoRouteFindsHaveTheShapeToo) {
  const auto keys = ApiKeys::parse("the-right-key");
  const auto server = api_.listen({.body_bytes_max = 1000}, {.keys = *keys});
  const auto type_of = [&server](std::string_view method, std::string_view path,
                                 std::string_view headers) {
    RawClient client(server->port());
    client.send(fmt::format("{} {} HTTP/1.1\r\nHost: x\r\n{}\r\n", method, path, headers));
    const Json json = Json::parse(client.read_answer().body, nullptr, false);
    EXPECT_EQ(json["type"], "error") << json;
    EXPECT_FALSE(json["error"]["message"].get<std::string>().empty());
    return json["error"]["type"].get<std::string>();
  };
  const std::string key = "x-api-key: the-right-key\r\n";
  EXPECT_EQ(type_of("POST", "/v1/messages", ""), "authentication_error");
  EXPECT_EQ(type_of("POST", "/v1/messages/batches", key), "not_found_error");
  EXPECT_EQ(type_of("GET", "/v1/messages", key), "invalid_request_error");
  EXPECT_EQ(type_of("POST", "/v1/messages?beta=true", key + "Content-Length: 1001\r\n"),
            "request_too_large");
  EXPECT_EQ(type_of("POST", "/v1/messages", key + "Origin: https://evil.example\r\n"),
            "permission_error");
  api_.service().set_draining();
  const std::string text = body().dump();
  EXPECT_EQ(type_of("POST", "/v1/messages",
                    fmt::format("{}Content-Length: {}\r\n\r\n{}", key, text.size(), text)),
            "overloaded_error");
}

TEST_F(AnthropicRoutes, AnAnswerThatBreaksOffEndsWithAnError) {
  for (const bool is_stream : {false, true}) {
    ApiFixture api;
    const auto answer = api.start("POST", "/v1/messages", body({{"stream", is_stream}}).dump());
    api.generator().requests(1);
    api.generator().fail(0, Status::group("rank 1 left"));
    answer->wait();
    const Json error = is_stream ? answer->named_events().back().second : answer->json();
    EXPECT_EQ(error["error"]["type"], "overloaded_error");
    EXPECT_THAT(error["error"]["message"].get<std::string>(), HasSubstr("rank 1 left"));
    EXPECT_EQ(api.service().phase(), Service::Phase::kFailed);
  }
}

}  // namespace
}  // namespace shoal::server

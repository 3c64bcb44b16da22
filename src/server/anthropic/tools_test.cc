// Tools and thoughts through the routes of Anthropic's API.
#include <gmock/gmock.h>

#include "server/testing/api_fixture.h"

namespace shoal::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

Json tool(const std::string& name) {
  return {{"name", name},
          {"description", "about " + name},
          {"input_schema",
           {{"type", "object"},
            {"properties", {{"city", {{"type", "string"}}}}},
            {"required", {"city"}}}}};
}

std::string call_text(const std::string& city) {
  return "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"" + city +
         "\"}}\n</tool_call>";
}

class AnthropicTools : public ::testing::Test {
 protected:
  ApiFixture::Answer send(const std::string& answer, const Json& extra) {
    api_.generator().answer_at_once({byte_tokens(answer)});
    Json json = {{"model", "tiny"},
                 {"max_tokens", 500},
                 {"messages", Json::array({Json::object({{"role", "user"}, {"content", "hi"}})})}};
    if (!extra.is_null()) json.update(extra);
    return api_.call("POST", "/v1/messages", json);
  }
  Json whole(const std::string& answer, const Json& extra) {
    const auto sent = send(answer, extra);
    EXPECT_EQ(sent->status(), 200) << sent->response().body;
    return sent->json();
  }
  void refuse(const Json& extra, const std::string& words) {
    const auto answer = send("x", extra);
    EXPECT_EQ(answer->status(), 400) << extra;
    EXPECT_THAT(answer->json()["error"]["message"].get<std::string>(), HasSubstr(words));
  }

  ApiFixture api_{ApiFixture::kToolTemplate};
  const Json tools_ = Json::array({tool("weather"), tool("time")});
};

TEST_F(AnthropicTools, ACallIsABlock) {
  const Json json = whole("I look.\n" + call_text("Oslo"), {{"tools", tools_}});
  EXPECT_EQ(json["stop_reason"], "tool_use");
  ASSERT_EQ(json["content"].size(), 2U);
  EXPECT_EQ(json["content"][0], Json({{"type", "text"}, {"text", "I look."}}));
  const Json& call = json["content"][1];
  EXPECT_EQ(call["type"], "tool_use");
  EXPECT_EQ(call["name"], "weather");
  EXPECT_EQ(call["input"], Json({{"city", "Oslo"}}));
  EXPECT_FALSE(call["id"].get<std::string>().empty());
  EXPECT_THAT(api_.prompt(0), StartsWith("[[{\"type\": \"function\", \"function\": {\"name\": "));
}

TEST_F(AnthropicTools, AStreamHasABlockForEachPart) {
  const auto answer =
      send("<think>Hm.</think>I look.\n" + call_text("Oslo"),
           {{"tools", tools_},
            {"stream", true},
            {"thinking", {{"type", "adaptive"}}},
            {"messages", Json::array({Json::object({{"role", "user"}, {"content", "hi"}})})}});
  std::vector<std::string> kinds;
  std::string input;
  for (const auto& [name, event] : answer->named_events()) {
    if (event["type"] == "content_block_start") {
      EXPECT_EQ(event["index"], kinds.size());
      kinds.push_back(event["content_block"]["type"]);
    }
    if (event["type"] == "content_block_delta" && event["delta"]["type"] == "input_json_delta") {
      EXPECT_EQ(event["index"], 2);
      input += event["delta"]["partial_json"];
    }
    if (event["type"] == "message_delta") EXPECT_EQ(event["delta"]["stop_reason"], "tool_use");
  }
  EXPECT_THAT(kinds, ElementsAre("thinking", "text", "tool_use"));
  EXPECT_EQ(input, R"({"city": "Oslo"})");
}

TEST_F(AnthropicTools, ChoicesForceOrForbidCalls) {
  (void)whole(call_text("Oslo"), {{"tools", tools_}, {"tool_choice", {{"type", "any"}}}});
  EXPECT_NE(api_.generator().requests(1)[0].grammar, nullptr);
  const Json named = {{"tools", tools_}, {"tool_choice", {{"type", "tool"}, {"name", "weather"}}}};
  EXPECT_EQ(whole(call_text("Oslo"), named)["stop_reason"], "tool_use");
  const Json none = {{"tools", tools_}, {"tool_choice", {{"type", "none"}}}};
  EXPECT_EQ(whole(call_text("Oslo"), none)["content"][0]["text"], call_text("Oslo"));
  const Json one = {{"tools", tools_},
                    {"tool_choice", {{"type", "auto"}, {"disable_parallel_tool_use", true}}}};
  EXPECT_EQ(whole(call_text("Oslo") + call_text("Rome"), one)["content"].size(), 1U);
}

TEST_F(AnthropicTools, WhatIsWrongIsNamed) {
  refuse({{"tools", tools_}, {"tool_choice", {{"type", "tool"}, {"name", "x"}}}},
         "tool_choice.name");
  refuse({{"tool_choice", {{"type", "any"}}}}, "tool_choice.type");
  refuse({{"tools", Json::array({Json::object({{"name", "f"}})})}}, "tools[0].input_schema");
  refuse({{"tools", Json::array({Json::object({{"type", "web_search_20250305"}, {"name", "w"}})})}},
         "tools[0].type");
  refuse({{"tools", Json::array({tool("f"), tool("f")})}}, "tools[1].name");
  Json bad = tool("f");
  bad["input_schema"]["properties"]["city"]["type"] = "town";
  refuse({{"tools", Json::array({bad})}}, "tools[0].input_schema");
  refuse({{"thinking", {{"type", "enabled"}, {"budget_tokens", 5}}}}, "thinking.budget_tokens");
}

TEST_F(AnthropicTools, ResultsAndThoughtsGoToTheTemplate) {
  const Json messages = Json::parse(R"([
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": [
      {"type": "thinking", "thinking": "Hm.", "signature": ""},
      {"type": "text", "text": "I look."},
      {"type": "tool_use", "id": "t1", "name": "weather", "input": {"city": "Oslo"}}]},
    {"role": "user", "content": [
      {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "3"}]},
      {"type": "tool_result", "tool_use_id": "t2", "is_error": true, "content": "no"},
      {"type": "text", "text": "Well?"}]}])");
  (void)whole("Cold.", {{"messages", messages}, {"tools", tools_}});
  EXPECT_THAT(
      api_.prompt(0),
      HasSubstr("user:hi\nassistant:<think>Hm.</think>I look.<tool_call>weather t1 {\"city\": "
                "\"Oslo\"}</tool_call>\ntool:3(t1)\ntool:Error: no(t2)\nuser:Well?\n"));
}

TEST_F(AnthropicTools, ThoughtsAreGivenWhereTheyAreAskedFor) {
  const std::string text = "<think>Hm.</think>Yes.";
  const Json silent = whole(text, {});
  EXPECT_EQ(silent["content"], Json::array({Json({{"type", "text"}, {"text", "Yes."}})}));
  const Json enabled =
      whole("Hm.</think>Yes.", {{"thinking", {{"type", "enabled"}, {"budget_tokens", 1024}}}});
  ASSERT_EQ(enabled["content"].size(), 2U);
  EXPECT_EQ(enabled["content"][0]["type"], "thinking");
  EXPECT_EQ(enabled["content"][0]["thinking"], "Hm.");
  const Json omitted =
      whole("Hm.</think>Yes.", {{"thinking", {{"type", "adaptive"}, {"display", "omitted"}}}});
  EXPECT_EQ(omitted["content"], silent["content"]);
}

TEST_F(AnthropicTools, ArgumentsThatNestTooDeepAreText) {
  const std::string deep = std::string(50'000, '[');
  const std::string arguments = R"({"a": )" + deep + std::string(deep.size(), ']') + "}";
  const Json answer =
      whole("<tool_call>\n{\"name\": \"weather\", \"arguments\": " + arguments + "}\n</tool_call>",
            {{"tools", tools_}});
  for (const Json& block : answer["content"]) EXPECT_EQ(block["type"], "text");
}

TEST_F(AnthropicTools, ToolsAreCountedAsTheyAreTold) {
  const Json request = {
      {"model", "tiny"},
      {"tools", tools_},
      {"messages", Json::array({Json::object({{"role", "user"}, {"content", "hi"}})})}};
  const auto counted = api_.call("POST", "/v1/messages/count_tokens", request);
  (void)whole("x", {{"tools", tools_}});
  EXPECT_EQ(counted->json()["input_tokens"], api_.generator().requests(1)[0].prompt.size());
}

}  // namespace
}  // namespace shoal::server

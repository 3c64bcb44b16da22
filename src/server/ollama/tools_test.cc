// Tools and thoughts through the routes of Ollama's API.
#include <gmock/gmock.h>

#include "server/testing/api_fixture.h"

namespace shoal::server {
namespace {

using ::testing::HasSubstr;

class OllamaTools : public ::testing::Test {
 protected:
  ApiFixture::Answer chat(const std::string& answer, const Json& extra) {
    api_.generator().answer_at_once({byte_tokens(answer)});
    Json json = {{"model", "tiny"},
                 {"stream", false},
                 {"messages", Json::array({Json::object({{"role", "user"}, {"content", "hi"}})})}};
    if (!extra.is_null()) json.update(extra);
    return api_.call("POST", "/api/chat", json);
  }
  static std::vector<Json> lines(const std::string& text) {
    std::vector<Json> lines;
    for (size_t at = 0; at < text.size(); at = text.find('\n', at) + 1) {
      lines.push_back(Json::parse(text.substr(at, text.find('\n', at) - at)));
    }
    return lines;
  }

  ApiFixture api_{ApiFixture::kToolTemplate};
  const std::string call_ =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"Oslo\"}}\n</tool_call>";
  const Json tools_ = Json::parse(R"([{"type": "function", "function": {"name": "weather",
      "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}])");
};

TEST_F(OllamaTools, ACallHasItsArgumentsAsAnObject) {
  const Json message = chat("I look.\n" + call_, {{"tools", tools_}})->json()["message"];
  EXPECT_EQ(message["content"], "I look.");
  ASSERT_EQ(message["tool_calls"].size(), 1U);
  EXPECT_EQ(message["tool_calls"][0]["function"],
            Json({{"name", "weather"}, {"arguments", {{"city", "Oslo"}}}}));
}

TEST_F(OllamaTools, AStreamGivesACallOnceItIsWhole) {
  const auto all = lines(
      chat("I look.\n" + call_ + "\n" + call_, {{"tools", tools_}, {"stream", true}})->streamed());
  std::string text;
  size_t calls = 0;
  for (const Json& line : all) {
    text += line["message"]["content"];
    for (const Json& call : line["message"].value("tool_calls", Json::array())) {
      EXPECT_EQ(call["function"]["arguments"]["city"], "Oslo");
      ++calls;
    }
  }
  EXPECT_EQ(text, "I look.");
  EXPECT_EQ(calls, 2U);
  EXPECT_EQ(all.back()["done"], true);
}

TEST_F(OllamaTools, ResultsBelongToTheCallsInOrder) {
  const Json messages = Json::parse(R"([
    {"role": "user", "content": "hi"},
    {"role": "assistant", "thinking": "Hm.", "tool_calls": [
      {"function": {"name": "weather", "arguments": {"city": "Oslo", "a": 1}}},
      {"function": {"name": "weather", "arguments": {}}}]},
    {"role": "tool", "content": "3", "tool_name": "weather"},
    {"role": "tool", "content": "4", "tool_name": "weather"}])");
  EXPECT_EQ(chat("Cold.", {{"messages", messages}})->status(), 200);
  EXPECT_THAT(
      api_.prompt(0),
      HasSubstr("assistant:<think>Hm.</think><tool_call>weather call_1_0 {\"a\": 1, \"city\": "
                "\"Oslo\"}</tool_call><tool_call>weather call_1_1 {}</tool_call>\n"
                "tool:3(call_1_0)\ntool:4(call_1_1)\n"));
}

TEST_F(OllamaTools, ThoughtsAreApart) {
  const Json message = chat("Hm.</think>Yes.", {{"think", true}})->json()["message"];
  EXPECT_EQ(message["thinking"], "Hm.");
  EXPECT_EQ(message["content"], "Yes.");
  std::string thought;
  for (const Json& line :
       lines(chat("Hm.</think>Yes.", {{"think", "low"}, {"stream", true}})->streamed())) {
    thought += line["message"].value("thinking", "");
  }
  EXPECT_EQ(thought, "Hm.");
  EXPECT_EQ(chat("Yes.", {{"think", false}})->json()["message"]["content"], "Yes.");
  const Json prompt = {{"model", "tiny"}, {"prompt", "hi"}, {"stream", false}, {"think", true}};
  api_.generator().answer_at_once({byte_tokens("Hm.</think>Yes.")});
  const Json generated = api_.call("POST", "/api/generate", prompt)->json();
  EXPECT_EQ(generated["thinking"], "Hm.");
  EXPECT_EQ(generated["response"], "Yes.");
}

TEST_F(OllamaTools, WhatIsWrongIsNamed) {
  const auto refuse = [this](const Json& extra, const std::string& words) {
    const auto answer = chat("x", extra);
    EXPECT_EQ(answer->status(), 400) << extra;
    EXPECT_THAT(answer->json()["error"].get<std::string>(), HasSubstr(words));
  };
  refuse({{"tools", Json::array({Json::object({{"type", "function"}})})}}, "tools[0].function");
  refuse({{"think", "much"}}, "think");
  refuse({{"think", 1}}, "think");
  const Json call = {{"function", {{"name", "f"}, {"arguments", "{}"}}}};
  refuse(
      {{"messages",
        Json::array({Json::object({{"role", "assistant"}, {"tool_calls", Json::array({call})}})})}},
      "messages[0].tool_calls[0].function.arguments");
  ApiFixture plain;
  EXPECT_EQ(
      plain
          .call("POST", "/api/chat",
                {{"model", "tiny"},
                 {"think", true},
                 {"messages", Json::array({Json::object({{"role", "user"}, {"content", "hi"}})})}})
          ->status(),
      400);
}

TEST_F(OllamaTools, CapabilitiesSayWhatTheModelCan) {
  EXPECT_EQ(api_.call("POST", "/api/show", {{"model", "tiny"}})->json()["capabilities"],
            Json({"completion", "tools", "thinking"}));
}

}  // namespace
}  // namespace shoal::server

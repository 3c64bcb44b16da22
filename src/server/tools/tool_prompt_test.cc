#include "server/tools/tool_prompt.h"

#include <gmock/gmock.h>

namespace shoal::server {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

constexpr text::AnswerFormat kKnowsTools{.has_tools = true, .has_call_history = true};

Json said(std::string_view role, const Json& content, const Json& extra = Json::object()) {
  Json json = {{"role", role}, {"content", content}};
  json.update(extra);
  return json;
}
Json call(const std::string& name, const std::string& arguments, const std::string& id = "c1") {
  return {
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

ToolOptions two_tools() {
  return {.tools = {{.name = "f", .definition = "{\"z\":1,\n\"a\": 2}", .parameters = "{}"},
                    {.name = "g", .definition = "{}", .parameters = "{}"}}};
}

Json put(const ToolOptions& tools, const text::AnswerFormat& format, const Json& messages) {
  Json input = {{"messages", messages}};
  put_tools(tools, format, &input);
  return input;
}

TEST(ToolPrompt, ATemplateWithToolsGetsTheirTextAsItIs) {
  const Json messages = Json::array({said("user", "hi")});
  const Json input = put(two_tools(), kKnowsTools, messages);
  EXPECT_EQ(input["tools"], "[{\"z\":1,\n\"a\": 2}, {}]");
  EXPECT_EQ(input["messages"], messages);
}

TEST(ToolPrompt, ToolsThatMayNotBeCalledAreNotToldOf) {
  ToolOptions tools = two_tools();
  tools.choice = ToolChoice::kNone;
  EXPECT_FALSE(put(tools, kKnowsTools, Json::array({said("user", "hi")})).contains("tools"));
  EXPECT_EQ(put(tools, {}, Json::array({said("user", "hi")}))["messages"].size(), 1U);
}

TEST(ToolPrompt, ATemplateWithoutToolsGetsASystemText) {
  Json messages = put(two_tools(), {}, Json::array({said("user", "hi")}))["messages"];
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_EQ(messages[0]["role"], "system");
  const auto text = messages[0]["content"].get<std::string>();
  EXPECT_THAT(text, HasSubstr("<tools>\n{\"z\": 1, \"a\": 2}\n{}\n</tools>"));
  EXPECT_THAT(text, EndsWith("<tool_call>\n{\"name\": \"NAME\", \"arguments\": {\"PARAMETER\": "
                             "VALUE}}\n</tool_call>"));

  messages = put(two_tools(), {},
                 Json::array({said("system", "Be brief."), said("user", "hi")}))["messages"];
  ASSERT_EQ(messages.size(), 2U);
  EXPECT_THAT(messages[0]["content"].get<std::string>(), StartsWith("Be brief.\n\nYou can call"));
}

TEST(ToolPrompt, CallsAndResultsAreWrittenWhereATemplateHasNoPlaceForThem) {
  const Json part = {{"type", "text"}, {"text", "3"}};
  const Json messages =
      put({}, {},
          Json::array({said("user", "hi"),
                       said("assistant", nullptr,
                            {{"tool_calls",
                              Json::array({call("f", "{\"b\": 1, \"a\": 2}"), call("g", "{}")})}}),
                       said("tool", "3", {{"tool_call_id", "c1"}}),
                       said("tool", Json::array({part, part})), said("user", "and?")}))["messages"];
  ASSERT_EQ(messages.size(), 4U);
  EXPECT_EQ(messages[1]["content"],
            "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"b\": 1, \"a\": 2}}\n</tool_call>\n"
            "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>");
  EXPECT_FALSE(messages[1].contains("tool_calls"));
  EXPECT_EQ(messages[2],
            said("user",
                 "<tool_response>\n3\n</tool_response>\n<tool_response>\n3\n3\n</tool_response>"));
  EXPECT_EQ(messages[3], said("user", "and?"));
}

TEST(ToolPrompt, DeepSeeksTemplateIsToldItsOwnForm) {
  const text::AnswerFormat format{.calls = text::CallFormat::kDeepSeekFence,
                                  .has_call_history = true};
  const Json input = put(two_tools(), format, Json::array({said("user", "hi")}));
  EXPECT_THAT(input["messages"][0]["content"].get<std::string>(),
              HasSubstr("function<｜tool▁sep｜>NAME\n```json\n{\"PARAMETER\": VALUE}\n```"));
}

TEST(ToolPrompt, IdsBecomeShortOnesThatStillBelongTogether) {
  text::AnswerFormat format = kKnowsTools;
  format.wants_short_call_ids = true;
  const Json messages =
      put({}, format,
          Json::array({said("assistant", nullptr,
                            {{"tool_calls", Json::array({call("f", "{}", "call_0123456789"),
                                                         call("f", "{}", "AbCdEf123")})}}),
                       said("tool", "3", {{"tool_call_id", "call_0123456789"}})}))["messages"];
  const Json& calls = messages[0]["tool_calls"];
  EXPECT_THAT(calls[0]["id"].get<std::string>(), MatchesRegex("[0-9a-z]{9}"));
  EXPECT_EQ(messages[1]["tool_call_id"], calls[0]["id"]);
  EXPECT_EQ(calls[1]["id"], "AbCdEf123");
}

TEST(ToolPrompt, EarlierThoughtsGoWhereTheTemplateReadsThem) {
  text::AnswerFormat format = kKnowsTools;
  format.reads_message_thinking = true;
  const Json calls = {{"tool_calls", Json::array({call("f", "{}")})}, {"reasoning_content", "Hm."}};
  const Json messages = put({}, format,
                            Json::array({said("assistant", nullptr, calls),
                                         said("assistant", "Both", calls)}))["messages"];
  EXPECT_EQ(messages[0]["thinking"], "Hm.");
  EXPECT_FALSE(messages[1].contains("thinking"));
}

}  // namespace
}  // namespace shoal::server

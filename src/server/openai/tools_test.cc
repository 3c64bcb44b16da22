// Tools and thoughts through the route of OpenAI's chats.
#include <gmock/gmock.h>

#include <set>

#include "server/testing/api_fixture.h"

namespace shoal::server {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using Ids = std::vector<runtime::TokenId>;

Json function(const std::string& name) {
  return {{"type", "function"},
          {"function",
           {{"name", name},
            {"description", "about " + name},
            {"parameters",
             {{"type", "object"},
              {"properties", {{"city", {{"type", "string"}}}}},
              {"required", {"city"}},
              {"additionalProperties", false}}}}}};
}

Json body(const Json& extra) {
  Json json = {{"model", "tiny"},
               {"messages", Json::array({Json::object({{"role", "user"}, {"content", "hi"}})})}};
  if (!extra.is_null()) json.update(extra);
  return json;
}

std::string call_text(const std::string& name, const std::string& city) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": {\"city\": \"" + city +
         "\"}}\n</tool_call>";
}

class OpenAiTools : public ::testing::Test {
 protected:
  ApiFixture::Answer chat(const std::string& answer, const Json& extra) {
    api_.generator().answer_at_once({byte_tokens(answer)});
    return api_.call("POST", "/v1/chat/completions", body(extra));
  }
  Json choice(const std::string& answer, const Json& extra) {
    const auto whole = chat(answer, extra);
    EXPECT_EQ(whole->status(), 200) << whole->response().body;
    return whole->json()["choices"].at(0);
  }
  void refuse(const Json& extra, const std::string& param) {
    const auto answer = chat("x", extra);
    EXPECT_EQ(answer->status(), 400) << extra;
    EXPECT_EQ(answer->json()["error"]["param"], param) << answer->response().body;
  }

  // A stream put together as clients do it, with the ids left out; checks each delta's form.
  static Json joined(const std::vector<Json>& events) {
    Json message = {{"content", ""}, {"reasoning_content", ""}, {"tool_calls", Json::array()}};
    std::set<std::string> ids;
    for (const Json& event : events) {
      const Json& entry = event["choices"].at(0);
      if (!entry["finish_reason"].is_null()) message["finish_reason"] = entry["finish_reason"];
      for (const auto& [key, value] : entry["delta"].items()) {
        if (key == "content" || key == "reasoning_content") {
          message[key] = message[key].get<std::string>() + value.get<std::string>();
        }
      }
      for (const Json& call : entry["delta"].value("tool_calls", Json::array())) {
        Json& calls = message["tool_calls"];
        const auto index = call["index"].get<size_t>();
        if (index == calls.size()) {
          EXPECT_EQ(call["type"], "function");
          EXPECT_EQ(call["function"]["arguments"], "");
          EXPECT_TRUE(ids.insert(call["id"].get<std::string>()).second);
          calls.push_back(call["function"]);
        } else {
          EXPECT_EQ(index + 1, calls.size());
          EXPECT_FALSE(call.contains("id") || call["function"].contains("name"));
          Json& arguments = calls.at(index)["arguments"];
          arguments =
              arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
        }
      }
    }
    return message;
  }

  // That the answer's grammar takes this text to its end.
  static bool allows(const runtime::GenerationRequest& request, const std::string& text) {
    const auto constraint = request.grammar->start();
    for (const runtime::TokenId id : byte_tokens(text)) {
      const auto mask = constraint->allowed();
      if (!mask.is_ok() || !(*mask).allows(id)) return false;
      const auto is_whole = constraint->accept(id);
      if (!is_whole.is_ok()) return false;
      if (*is_whole) return id == byte_tokens(text).back();
    }
    const auto mask = constraint->allowed();
    return mask.is_ok() && (*mask).allows(kEndToken);
  }

  ApiFixture api_{ApiFixture::kToolTemplate};
  const Json tools_ = Json::array({function("weather"), function("time")});
};

TEST_F(OpenAiTools, C50CallsAreAnswered) {
  const Json answer =
      choice("Let me see.\n" + call_text("weather", "Oslo") + "\n" + call_text("time", "Rome"),
             {{"tools", tools_}});
  EXPECT_EQ(answer["finish_reason"], "tool_calls");
  EXPECT_EQ(answer["message"]["content"], "Let me see.");
  const Json& calls = answer["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"],
            Json({{"name", "weather"}, {"arguments", R"({"city": "Oslo"})"}}));
  EXPECT_EQ(calls[1]["function"]["name"], "time");
  EXPECT_THAT(calls[0]["id"].get<std::string>(), StartsWith("call_"));
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

TEST_F(OpenAiTools, C50AnAnswerOfCallsAloneHasNoContent) {
  const Json answer =
      choice(call_text("time", "Rome"), {{"tools", tools_}, {"tool_choice", "required"}});
  EXPECT_TRUE(answer["message"]["content"].is_null());
  EXPECT_EQ(answer["message"]["tool_calls"].size(), 1U);
}

TEST_F(OpenAiTools, C50AStreamSaysTheSameInDeltas) {
  const std::string text =
      "Well.\n" + call_text("weather", "Oslo") + "\n" + call_text("time", "A\\\"B");
  for (const char* word : {"auto", "required"}) {
    const Json options = {{"tools", tools_}, {"tool_choice", word}, {"stream", true}};
    const Json streamed = joined(chat(text, options)->events());
    Json whole = choice(text, {{"tools", tools_}, {"tool_choice", word}});
    EXPECT_EQ(streamed["finish_reason"], "tool_calls");
    EXPECT_EQ(streamed["content"], whole["message"]["content"]);
    ASSERT_EQ(streamed["tool_calls"].size(), 2U);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(streamed["tool_calls"][i], whole["message"]["tool_calls"][i]["function"]);
      const auto arguments = streamed["tool_calls"][i]["arguments"].get<std::string>();
      EXPECT_TRUE(Json::accept(arguments)) << arguments;
    }
  }
}

TEST_F(OpenAiTools, C50ArgumentsThatAllArriveInTheLastStepAreNotLost) {
  const auto answer = api_.start("POST", "/v1/chat/completions",
                                 body({{"tools", tools_}, {"stream", true}}).dump());
  api_.generator().requests(1);
  for (const int32_t id : byte_tokens(call_text("time", "Rome"))) api_.generator().give(0, id);
  api_.generator().finish(0, runtime::StopReason::kEndOfGeneration);
  answer->wait();
  EXPECT_EQ(joined(answer->events())["tool_calls"][0]["arguments"], R"({"city": "Rome"})");
}

TEST_F(OpenAiTools, C50ArgumentsComeBeforeTheyAreWhole) {
  const auto answer = api_.start("POST", "/v1/chat/completions",
                                 body({{"tools", tools_}, {"stream", true}}).dump());
  api_.generator().requests(1);
  for (const int32_t id : byte_tokens("<tool_call>\n{\"name\": \"time\", \"arguments\": {\"cit")) {
    api_.generator().give(0, id);
  }
  answer->wait_for(R"(t"}}]})");  // the last fragment's end, however many there are
  api_.generator().finish(0, runtime::StopReason::kTokensMax);
  answer->wait();
  EXPECT_EQ(joined(answer->events())["finish_reason"], "length");
}

TEST_F(OpenAiTools, C50ToolChoiceNoneGivesNoneAndTellsOfNone) {
  const std::string text = call_text("time", "Rome");
  const Json answer = choice(text, {{"tools", tools_}, {"tool_choice", "none"}});
  EXPECT_EQ(answer["message"]["content"], text);
  EXPECT_FALSE(answer["message"].contains("tool_calls"));
  EXPECT_EQ(answer["finish_reason"], "stop");
  EXPECT_EQ(api_.prompt(0), "user:hi\nassistant:");
}

TEST_F(OpenAiTools, C50AnUnknownNameIsRefused) {
  refuse({{"tools", tools_},
          {"tool_choice", {{"type", "function"}, {"function", {{"name", "other"}}}}}},
         "tool_choice.function.name");
}

TEST_F(OpenAiTools, C50ForcedCallsFollowAGrammar) {
  (void)choice("x", {{"tools", tools_}, {"tool_choice", "required"}});
  const auto required = api_.generator().requests(1)[0];
  ASSERT_NE(required.grammar, nullptr);
  const std::string both = call_text("weather", "Oslo") + "\n" + call_text("time", "Rome");
  EXPECT_TRUE(allows(required, both));
  EXPECT_TRUE(allows(required, call_text("time", "Rome")));
  EXPECT_FALSE(allows(required, "Oslo"));
  EXPECT_FALSE(allows(required, call_text("other", "Rome")));
  EXPECT_FALSE(
      allows(required, "<tool_call>\n{\"name\": \"time\", \"arguments\": {}}\n</tool_call>"));

  (void)choice("x", {{"tools", tools_},
                     {"tool_choice", {{"type", "function"}, {"function", {{"name", "time"}}}}}});
  const auto named = api_.generator().requests(2)[1];
  EXPECT_TRUE(allows(named, call_text("time", "Rome")));
  EXPECT_FALSE(allows(named, call_text("weather", "Rome")));
  EXPECT_FALSE(allows(named, both));
}

TEST_F(OpenAiTools, ACallThatTheModelBeginsItselfFollowsItsSchema) {
  (void)choice("x", {{"tools", tools_}});
  const auto request = api_.generator().requests(1)[0];
  ASSERT_NE(request.grammar, nullptr);
  EXPECT_TRUE(allows(request, "Just words."));
  EXPECT_TRUE(allows(request, "Words. " + call_text("time", "Rome") + "\nMore."));
  EXPECT_FALSE(allows(request, "<tool_call>\n{\"name\": \"other"));
}

TEST_F(OpenAiTools, WithoutParallelCallsTheFirstOneEndsTheAnswer) {
  const std::string text = call_text("weather", "Oslo") + "\n" + call_text("time", "Rome");
  const Json options = {{"tools", tools_}, {"parallel_tool_calls", false}};
  const Json answer = choice(text, options);
  EXPECT_EQ(answer["message"]["tool_calls"].size(), 1U);
  EXPECT_EQ(answer["finish_reason"], "tool_calls");
}

TEST_F(OpenAiTools, ASchemaThatNoGrammarHasIsAHelpUnlessItMustHold) {
  Json tools = tools_;
  tools[0]["function"]["parameters"]["properties"]["city"]["not"] = {{"const", "x"}};
  EXPECT_EQ(choice(call_text("time", "Rome"), {{"tools", tools}})["finish_reason"], "tool_calls");
  refuse({{"tools", tools}, {"tool_choice", "required"}}, "tools");
  tools[0]["function"]["strict"] = true;
  refuse({{"tools", tools}}, "tools");
}

TEST_F(OpenAiTools, WhatLooksLikeACallAndIsNoneIsContent) {
  Json tools = tools_;
  tools[0]["function"]["parameters"]["properties"]["city"]["not"] = {{"const", "x"}};  // no grammar
  for (const std::string text :
       {"<tool_call>\nweather(Oslo)\n</tool_call>", "<tool_call>\n{\"name\": \"rm\"}\n</tool_call>",
        "<tool_call>\n{\"name\": \"time\", \"arguments\": {\"city\": }}\n</tool_call>"}) {
    const Json answer = choice(text, {{"tools", tools}});
    EXPECT_EQ(answer["message"]["content"], text);
    EXPECT_EQ(answer["finish_reason"], "stop");
    EXPECT_EQ(joined(chat(text, {{"tools", tools}, {"stream", true}})->events())["content"], text);
  }
}

TEST_F(OpenAiTools, C32TheTemplateGetsToolsWithTheirKeysInOrder) {
  const std::string request =
      R"({"model":"tiny","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function",)"
      R"("function":{"name":"f","parameters":{"type":"object","properties":{"z":{},"a":{}}}}}]})";
  api_.generator().answer_at_once({Ids{ApiFixture::word(0)}});
  api_.start("POST", "/v1/chat/completions", request)->wait();
  EXPECT_THAT(api_.prompt(0),
              StartsWith(R"([[{"type": "function", "function": {"name": "f", "parameters": )"
                         R"({"type": "object", "properties": {"z": {}, "a": {}}}}}]])"));
}

TEST_F(OpenAiTools, C37ResultsGoToTheTemplateWithTheirCalls) {
  const Json call = {
      {"id", "c1"},
      {"type", "function"},
      {"function", {{"name", "weather"}, {"arguments", R"({"city":"Paris","a":1})"}}}};
  const Json messages = Json::array(
      {Json::object({{"role", "user"}, {"content", "hi"}}),
       Json::object(
           {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array({call})}}),
       Json::object({{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "3"}})});
  EXPECT_EQ(choice("Cold.", {{"messages", messages}})["message"]["content"], "Cold.");
  EXPECT_THAT(
      api_.prompt(0),
      HasSubstr("assistant:<tool_call>weather c1 {\"city\": \"Paris\", \"a\": 1}</tool_call>\n"
                "tool:3(c1)\n"));
}

TEST_F(OpenAiTools, ATemplateWithoutToolsIsToldOfThem) {
  ApiFixture api;
  api.generator().answer_at_once({byte_tokens(call_text("time", "Rome"))});
  const Json tools = Json::array({function("time")});
  const auto answer = api.call("POST", "/v1/chat/completions", body({{"tools", tools}}));
  EXPECT_EQ(answer->json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"], "time");
  EXPECT_THAT(api.prompt(0), StartsWith("system:You can call functions."));
  EXPECT_THAT(api.prompt(0), HasSubstr("about time"));
}

TEST_F(OpenAiTools, ThoughtsAreApart) {
  const std::string text = "<think>\nThey want\nOslo.\n</think>\n\nIt is cold.";
  const Json whole = choice(text, {})["message"];
  EXPECT_EQ(whole["reasoning_content"], "They want\nOslo.");
  EXPECT_EQ(whole["content"], "It is cold.");
  const Json streamed = joined(chat(text, {{"stream", true}})->events());
  EXPECT_EQ(streamed["reasoning_content"], whole["reasoning_content"]);
  EXPECT_EQ(streamed["content"], whole["content"]);
}

TEST_F(OpenAiTools, TokensOfThoughtsAreCounted) {
  for (const bool is_stream : {false, true}) {
    const auto answer =
        chat("<think>Hm.</think>Yes.",
             {{"stream", is_stream},
              {"stream_options", is_stream ? Json({{"include_usage", true}}) : Json(nullptr)}});
    const Json json = is_stream ? answer->events().back() : answer->json();
    // The mark between the two is counted with what follows.
    EXPECT_EQ(json["usage"]["completion_tokens_details"]["reasoning_tokens"],
              std::string("<think>Hm.").size());
  }
}

TEST_F(OpenAiTools, AThoughtThatThePromptOpenedIsOneToo) {
  for (const Json& options :
       std::vector<Json>{{{"chat_template_kwargs", {{"enable_thinking", true}}}},
                         {{"reasoning_effort", "low"}}}) {
    const Json message = choice("Hm.</think>Yes.", options)["message"];
    EXPECT_EQ(message["reasoning_content"], "Hm.");
    EXPECT_EQ(message["content"], "Yes.");
  }
  EXPECT_EQ(choice("Hm.</think>Yes.", {{"reasoning_effort", "none"}})["message"]["content"],
            "Hm.</think>Yes.");
}

TEST_F(OpenAiTools, AForcedCallMayComeAfterAThought) {
  (void)choice("x", {{"tools", tools_},
                     {"tool_choice", "required"},
                     {"chat_template_kwargs", {{"enable_thinking", true}}}});
  const auto opened = api_.generator().requests(1)[0];
  EXPECT_TRUE(allows(opened, "Hm.\n</think>\n\n" + call_text("time", "Rome")));
  EXPECT_FALSE(allows(opened, "Hm.\n</think>\n\nNo."));
  (void)choice("x", {{"tools", tools_}, {"tool_choice", "required"}});
  const auto closed = api_.generator().requests(2)[1];
  EXPECT_TRUE(allows(closed, "<think>Hm.</think>\n" + call_text("time", "Rome")));
  EXPECT_TRUE(allows(closed, call_text("time", "Rome")));
}

TEST_F(OpenAiTools, AFormIsDemandedOfWhatIsBehindTheThought) {
  const Json format = {{"type", "json_schema"},
                       {"json_schema", {{"name", "n"}, {"schema", {{"const", 1}}}}}};
  const auto request = [&](size_t number, Json extra) {
    extra["response_format"] = format;
    (void)choice("1", extra);
    return api_.generator().requests(number).back();
  };
  const auto opened = request(1, {{"chat_template_kwargs", {{"enable_thinking", true}}}});
  EXPECT_TRUE(allows(opened, "Hm.\n</think>\n\n1"));
  EXPECT_FALSE(allows(opened, "Hm."));
  EXPECT_FALSE(allows(opened, "1"));
  const auto free = request(2, Json::object());
  EXPECT_TRUE(allows(free, "<think>\nHm.\n</think>\n\n1"));
  EXPECT_TRUE(allows(free, "1"));
  EXPECT_FALSE(allows(free, "<think>Hm.</think>"));
  const auto none = request(3, {{"reasoning_effort", "none"}});
  EXPECT_TRUE(allows(none, "1"));
  EXPECT_FALSE(allows(none, "<think>Hm.</think>1"));
}

TEST_F(OpenAiTools, ACallInAThoughtIsPartOfIt) {
  const std::string call = "<tool_call>\nweather(Oslo)";
  (void)choice("x", {{"tools", tools_}, {"chat_template_kwargs", {{"enable_thinking", true}}}});
  const auto opened = api_.generator().requests(1)[0];
  EXPECT_TRUE(allows(opened, call + "</think>No."));
  EXPECT_FALSE(allows(opened, "</think>" + call));
  (void)choice("x", {{"tools", tools_}, {"parallel_tool_calls", false}});
  EXPECT_TRUE(allows(api_.generator().requests(2)[1],
                     "<think>" + call + "</think>" + call_text("time", "Rome")));
}

TEST_F(OpenAiTools, EarlierThoughtsGoToTheTemplate) {
  const Json messages = Json::array(
      {Json::object({{"role", "user"}, {"content", "hi"}}),
       Json::object({{"role", "assistant"}, {"content", "a"}, {"reasoning_content", "b"}})});
  (void)choice("x", {{"messages", messages}});
  EXPECT_THAT(api_.prompt(0), HasSubstr("assistant:<think>b</think>a\n"));
}

TEST_F(OpenAiTools, AModelThatDoesNotThinkSaysSo) {
  ApiFixture api;
  const auto refused =
      api.call("POST", "/v1/chat/completions", body({{"reasoning_effort", "high"}}));
  EXPECT_EQ(refused->status(), 400);
  EXPECT_EQ(refused->json()["error"]["param"], "reasoning_effort");
  api.generator().answer_at_once({Ids{ApiFixture::word(0)}});
  EXPECT_EQ(
      api.call("POST", "/v1/chat/completions", body({{"reasoning_effort", "none"}}))->status(),
      200);
}

TEST_F(OpenAiTools, TheFormatsAreAMetric) {
  EXPECT_THAT(api_.call("GET", "/metrics")->response().body,
              HasSubstr("shoal:answer_format_info{calls=\"hermes\",model_name=\"tiny\",thoughts="
                        "\"think\"} 1"));
}

}  // namespace
}  // namespace shoal::server

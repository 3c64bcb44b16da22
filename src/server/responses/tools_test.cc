// Tools, thoughts and formats through the route of the Responses API.
#include <gmock/gmock.h>

#include <set>

#include "server/testing/api_fixture.h"

namespace shoal::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Json tool(const std::string& name) {
  return {{"type", "function"},
          {"name", name},
          {"description", "about " + name},
          {"strict", true},
          {"parameters",
           {{"type", "object"},
            {"properties", {{"city", {{"type", "string"}}}}},
            {"required", {"city"}},
            {"additionalProperties", false}}}};
}

std::string call_text(const std::string& name, const std::string& city) {
  return "<tool_call>\n{\"name\": \"" + name + "\", \"arguments\": {\"city\": \"" + city +
         "\"}}\n</tool_call>";
}

// An answer of every kind of item.
std::string full_text() {
  return "<think>Hm.</think>I look.\n" + call_text("weather", "Oslo") + "\n" +
         call_text("time", "A\\\"B");
}

std::vector<std::string> types(const Json& output) {
  std::vector<std::string> types;
  for (const Json& item : output) types.push_back(item["type"]);
  return types;
}

class ResponsesTools : public ::testing::Test {
 protected:
  ApiFixture::Answer send(const std::string& answer, const Json& extra) {
    api_.generator().answer_at_once({byte_tokens(answer)});
    Json json = {{"model", "tiny"}, {"input", "hi"}};
    json.update(extra);
    return api_.call("POST", "/v1/responses", json);
  }
  Json whole(const std::string& answer, const Json& extra) {
    const auto sent = send(answer, extra);
    EXPECT_EQ(sent->status(), 200) << sent->response().body;
    return sent->json();
  }
  void refuse(const Json& extra, const std::string& param) {
    const auto answer = send("x", extra);
    ASSERT_EQ(answer->status(), 400) << extra;
    EXPECT_EQ(answer->json()["error"]["param"], param) << answer->response().body;
  }

  ApiFixture api_{ApiFixture::kToolTemplate};
  const Json tools_ = Json::array({tool("weather"), tool("time")});
};

TEST_F(ResponsesTools, ThoughtsTextAndCallsAreItems) {
  const Json json = whole(full_text(), {{"tools", tools_}});
  EXPECT_EQ(json["status"], "completed");
  const Json& output = json["output"];
  ASSERT_THAT(types(output), ElementsAre("reasoning", "message", "function_call", "function_call"));
  EXPECT_EQ(output[0]["summary"], Json::array());
  EXPECT_EQ(output[0]["content"],
            Json::array({Json::object({{"type", "reasoning_text"}, {"text", "Hm."}})}));
  EXPECT_EQ(output[1]["content"][0]["text"], "I look.");
  EXPECT_EQ(output[2]["name"], "weather");
  EXPECT_EQ(output[2]["arguments"], R"({"city": "Oslo"})");
  EXPECT_EQ(output[3]["arguments"], R"({"city": "A\"B"})");
  EXPECT_THAT(output[2]["call_id"].get<std::string>(), StartsWith("call_"));
  EXPECT_NE(output[2]["call_id"], output[3]["call_id"]);
  std::set<std::string> ids;
  for (const Json& item : output) {
    EXPECT_EQ(item["status"], "completed");
    EXPECT_TRUE(ids.insert(item["id"].get<std::string>()).second);
  }
  EXPECT_EQ(json["usage"]["output_tokens_details"]["reasoning_tokens"],
            std::string("<think>Hm.").size());
  EXPECT_EQ(json["tools"], tools_);
  EXPECT_EQ(json["tool_choice"], "auto");
}

// A stream put together as clients do it; checks each event's form.
class Follower {
 public:
  void follow(const std::string& name, const Json& data) {
    EXPECT_EQ(data["type"], name);
    EXPECT_EQ(data["sequence_number"], count_++);
    if (name == "response.output_item.added") {
      EXPECT_EQ(data["output_index"], items_.size());
      EXPECT_FALSE(is_open_);
      is_open_ = true;
      items_.push_back(data["item"]);
      EXPECT_EQ(item()["status"], "in_progress");
    } else if (data.contains("output_index")) {
      EXPECT_EQ(data["output_index"], items_.size() - 1);
      EXPECT_TRUE(is_open_);
      if (data.contains("item_id")) EXPECT_EQ(data["item_id"], item()["id"]);
      on_part(name, data);
    }
  }
  const Json& items() const { return items_; }

 private:
  Json& item() { return items_.back(); }
  Json& text() {
    if (item()["type"] == "function_call") return item()["arguments"];
    return item()["content"].at(0)["text"];
  }
  void on_part(const std::string& name, const Json& data) {
    const std::string done = item()["type"] == "function_call" ? "arguments" : "text";
    if (name == "response.content_part.added") item()["content"].push_back(data["part"]);
    if (name.ends_with(".delta")) {
      text() = text().get<std::string>() + data["delta"].get<std::string>();
    }
    if (name.ends_with("text.done") || name.ends_with("arguments.done")) {
      EXPECT_EQ(data[done], text());
    }
    if (name == "response.content_part.done") EXPECT_EQ(data["part"], item()["content"].at(0));
    if (name != "response.output_item.done") return;
    item()["status"] = data["item"]["status"];
    EXPECT_EQ(data["item"], item());
    is_open_ = false;
  }

  Json items_ = Json::array();
  size_t count_ = 0;
  bool is_open_ = false;
};

TEST_F(ResponsesTools, AStreamTellsOfTheSameItems) {
  for (const char* word : {"auto", "required"}) {
    const Json options = {{"tools", tools_}, {"tool_choice", word}, {"stream", true}};
    const auto events = send(full_text(), options)->named_events();
    Follower follower;
    std::vector<std::string> names;
    for (const auto& [name, data] : events) {
      follower.follow(name, data);
      if (!name.ends_with(".delta")) names.push_back(name.substr(std::string("response.").size()));
    }
    EXPECT_THAT(names,
                ElementsAre("created", "in_progress", "output_item.added", "content_part.added",
                            "reasoning_text.done", "content_part.done", "output_item.done",
                            "output_item.added", "content_part.added", "output_text.done",
                            "content_part.done", "output_item.done", "output_item.added",
                            "function_call_arguments.done", "output_item.done", "output_item.added",
                            "function_call_arguments.done", "output_item.done", "completed"));
    const Json last = events.back().second["response"];
    EXPECT_EQ(last["output"], follower.items());
    EXPECT_EQ(last["tools"], tools_);
    EXPECT_EQ(events.front().second["response"]["tool_choice"], word);
    EXPECT_THAT(types(last["output"]),
                ElementsAre("reasoning", "message", "function_call", "function_call"));
  }
}

TEST_F(ResponsesTools, ACallThatTheLimitCutsIsIncomplete) {
  const std::string text = call_text("weather", "Oslo");
  const size_t cut = text.find("slo");
  for (const bool is_stream : {false, true}) {
    const auto answer = send(text, {{"tools", tools_},
                                    {"tool_choice", "required"},
                                    {"stream", is_stream},
                                    {"max_output_tokens", cut}});
    const Json json = is_stream ? answer->named_events().back().second["response"] : answer->json();
    EXPECT_EQ(json["status"], "incomplete");
    ASSERT_EQ(json["output"].size(), 1U);
    EXPECT_EQ(json["output"][0]["status"], "incomplete");
    EXPECT_EQ(json["output"][0]["arguments"], R"({"city": "O)");
  }
  const Json later =
      whole(text + "\nMore.", {{"tools", tools_}, {"max_output_tokens", text.size()}});
  EXPECT_EQ(later["status"], "incomplete");
  EXPECT_EQ(later["output"][0]["status"], "completed");
}

TEST_F(ResponsesTools, ChoicesForceForbidAndRestrict) {
  const Json named = {{"type", "function"}, {"name", "time"}};
  const Json forced = whole(call_text("time", "Rome"), {{"tools", tools_}, {"tool_choice", named}});
  EXPECT_EQ(forced["tool_choice"], named);
  EXPECT_THAT(types(forced["output"]), ElementsAre("function_call"));
  EXPECT_NE(api_.generator().requests(1)[0].grammar, nullptr);
  const Json none = whole(call_text("time", "Rome"), {{"tools", tools_}, {"tool_choice", "none"}});
  EXPECT_EQ(none["output"][0]["content"][0]["text"], call_text("time", "Rome"));
  EXPECT_EQ(api_.prompt(1), "user:hi\nassistant:");
  const Json allowed = {
      {"type", "allowed_tools"}, {"mode", "required"}, {"tools", Json::array({named})}};
  const Json some = whole(call_text("time", "Rome"), {{"tools", tools_}, {"tool_choice", allowed}});
  EXPECT_EQ(some["tools"].size(), 2U);
  EXPECT_EQ(some["tool_choice"], allowed);
  EXPECT_THAT(api_.prompt(2), HasSubstr("about time"));
  EXPECT_THAT(api_.prompt(2), Not(HasSubstr("weather")));
  const Json one = whole(full_text(), {{"tools", tools_}, {"parallel_tool_calls", false}});
  EXPECT_THAT(types(one["output"]), ElementsAre("reasoning", "message", "function_call"));
}

TEST_F(ResponsesTools, AnAnswersItemsAreTheNextTurnsInput) {
  const Json first = whole(full_text(), {{"tools", tools_}});
  Json input = Json::array({Json::object({{"role", "user"}, {"content", "hi"}})});
  for (const Json& item : first["output"]) input.push_back(item);
  const std::string id = first["output"][2]["call_id"];
  input.push_back({{"type", "function_call_output"}, {"call_id", id}, {"output", "3"}});
  (void)whole("Cold.", {{"input", input}, {"tools", tools_}});
  EXPECT_THAT(api_.prompt(1),
              HasSubstr("user:hi\nassistant:<think>Hm.</think>I look.<tool_call>weather " + id +
                        " {\"city\": \"Oslo\"}</tool_call>"));
  EXPECT_THAT(api_.prompt(1), HasSubstr("\ntool:3(" + id + ")\nassistant:"));
}

TEST_F(ResponsesTools, AThoughtAloneIsAnItem) {
  const Json json = whole("Hm. I wonder", {{"reasoning", {{"effort", "low"}}}});
  EXPECT_THAT(types(json["output"]), ElementsAre("reasoning"));
  EXPECT_EQ(json["reasoning"]["effort"], "low");
  const Json cut =
      whole("Hm. I wonder", {{"reasoning", {{"effort", "low"}}}, {"max_output_tokens", 3}});
  EXPECT_EQ(cut["output"][0]["status"], "incomplete");
  EXPECT_EQ(cut["usage"]["output_tokens_details"]["reasoning_tokens"], 3);
}

TEST_F(ResponsesTools, LogprobsAreThoseOfTheText) {
  const Json wanted = {{"tools", tools_}, {"include", {"message.output_text.logprobs"}}};
  const std::string text = "<think>Hm.</think>I look.\n" + call_text("time", "Rome");
  const Json json = whole(text, wanted);
  const Json& tokens = json["output"][1]["content"][0]["logprobs"];
  std::string joined;
  for (const Json& token : tokens) joined += token["token"].get<std::string>();
  // With the mark before it, which is no part of the thought.
  EXPECT_EQ(joined, "</think>I look.");
  Json streamed = wanted;
  streamed["stream"] = true;
  std::string deltas;
  for (const auto& [name, data] : send(text, streamed)->named_events()) {
    if (name != "response.output_text.delta") continue;
    for (const Json& token : data["logprobs"]) deltas += token["token"].get<std::string>();
  }
  EXPECT_EQ(deltas, joined);
}

TEST_F(ResponsesTools, AFormatIsEnforcedAndRepeated) {
  const Json format = {{"type", "json_schema"},
                       {"name", "f"},
                       {"schema", {{"type", "object"}, {"additionalProperties", false}}}};
  const Json json = whole("{}", {{"text", {{"format", format}}}});
  EXPECT_EQ(json["text"], Json({{"format", format}, {"verbosity", "medium"}}));
  EXPECT_NE(api_.generator().requests(1)[0].grammar, nullptr);
  (void)whole("{}", {{"text", {{"format", {{"type", "json_object"}}}}}});
  EXPECT_NE(api_.generator().requests(2)[1].grammar, nullptr);
  Json bad = format;
  bad["schema"]["not"] = Json::object();
  refuse({{"text", {{"format", bad}}}}, "text.format");
  refuse({{"text", {{"format", format}}}, {"tools", tools_}}, "text.format");
}

TEST_F(ResponsesTools, AModelThatDoesNotThinkSaysSo) {
  ApiFixture api;
  const auto refused =
      api.call("POST", "/v1/responses",
               {{"model", "tiny"}, {"input", "hi"}, {"reasoning", {{"effort", "high"}}}});
  EXPECT_EQ(refused->status(), 400);
  EXPECT_EQ(refused->json()["error"]["param"], "reasoning.effort");
}

TEST_F(ResponsesTools, LargeToolsAreRepeatedInLinearTime) {
  Json large = tool("weather");
  for (int i = 0; i < 20'000; ++i) large["parameters"]["x" + std::to_string(i)] = i;
  large["strict"] = false;
  const Json json = whole("x", {{"tools", Json::array({large})}, {"tool_choice", "none"}});
  EXPECT_EQ(json["tools"][0], large);
}

}  // namespace
}  // namespace shoal::server

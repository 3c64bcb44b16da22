#include "server/ollama/routes.h"

#include <gmock/gmock.h>

#include <tuple>

#include "server/ollama/answers.h"
#include "server/ollama/ollama_request.h"
#include "server/testing/api_fixture.h"
#include "server/testing/raw_client.h"

namespace shoal::server {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<runtime::TokenId>;

Json said(std::string_view content) {
  return Json::array({Json::object({{"role", "user"}, {"content", content}})});
}

class OllamaRoutes : public ::testing::Test {
 protected:
  OllamaRoutes() { api_.generator().answer_at_once({Ids{one_, two_}}); }

  ApiFixture::Answer chat(const Json& extra = Json::object()) {
    Json json = {{"model", "tiny"}, {"messages", said("hi")}};
    json.update(extra);
    return api_.call("POST", "/api/chat", json);
  }
  ApiFixture::Answer generate(const Json& extra = Json::object()) {
    Json json = {{"model", "tiny"}, {"prompt", "hi"}, {"stream", false}};
    json.update(extra);
    return api_.call("POST", "/api/generate", json);
  }
  void refuse(const ApiFixture::Answer& answer, std::string_view words) {
    EXPECT_EQ(answer->status(), 400);
    EXPECT_THAT(answer->json()["error"].get<std::string>(), HasSubstr(std::string(words)));
  }
  static std::vector<Json> lines(const std::string& text) {
    std::vector<Json> lines;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      lines.push_back(Json::parse(text.substr(at, end - at), nullptr, false));
      at = end + 1;
    }
    return lines;
  }

  ApiFixture api_;
  int32_t one_ = ApiFixture::word(0), two_ = ApiFixture::word(1);
};

TEST_F(OllamaRoutes, AChatIsStreamedAsLinesUnlessToldOtherwise) {
  const auto all = lines(chat()->streamed());
  ASSERT_GE(all.size(), 2U);
  std::string text;
  for (const Json& line : all) {
    EXPECT_EQ(line["model"], "tiny");
    EXPECT_EQ(line["message"]["role"], "assistant");
    text += line["message"]["content"];
  }
  EXPECT_EQ(text, " one two");
  EXPECT_EQ(all.front()["done"], false);
  EXPECT_EQ(all.back()["done"], true);
  EXPECT_EQ(all.back()["done_reason"], "stop");
  EXPECT_EQ(all.back()["eval_count"], 2);
  EXPECT_EQ(all.back()["prompt_eval_count"], std::string("user:hi\nassistant:").size() + 1);
  EXPECT_TRUE(all.back()["total_duration"].is_number_integer());
  const Json whole = chat({{"stream", false}})->json();
  EXPECT_EQ(whole["message"]["content"], " one two");
  EXPECT_EQ(whole["done"], true);
}

TEST_F(OllamaRoutes, APromptIsAnsweredThroughTheTemplateOrRaw) {
  EXPECT_EQ(generate({{"system", "brief"}})->json()["response"], " one two");
  EXPECT_EQ(api_.generator().requests(1)[0].prompt.size(),
            std::string("system:brief\nuser:hi\nassistant:").size() + 1);
  EXPECT_EQ(generate({{"raw", true}})->json()["response"], " one two");
  EXPECT_EQ(api_.generator().requests(2)[1].prompt.size(), 3U);
}

TEST_F(OllamaRoutes, OptionsArrive) {
  const Json options = {{"temperature", 0.25},
                        {"top_k", 7},
                        {"top_p", 0.5},
                        {"min_p", 0.1},
                        {"repeat_penalty", 1.5},
                        {"seed", 3},
                        {"num_predict", 1},
                        {"stop", {"x"}},
                        {"num_ctx", 512},
                        {"presence_penalty", 0.5},
                        {"frequency_penalty", 0.25}};
  const Json answer = chat({{"stream", false}, {"options", options}, {"keep_alive", "5m"}})->json();
  EXPECT_EQ(answer["done_reason"], "length");
  const auto request = api_.generator().requests(1)[0];
  EXPECT_EQ(request.sampling.temperature, 0.25F);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_EQ(request.sampling.top_p, 0.5F);
  EXPECT_EQ(request.sampling.repetition_penalty, 1.5F);
  EXPECT_EQ(request.sampling.seed, 3U);
  EXPECT_EQ(request.tokens_max, 1U);
  (void)chat({{"stream", false}});
  EXPECT_EQ(api_.generator().requests(2)[1].sampling.top_k, ollama_sampling().top_k);
}

TEST_F(OllamaRoutes, ARequestForNothingLoadsTheModel) {
  EXPECT_EQ(chat({{"messages", Json::array()}})->json()["done_reason"], "load");
  EXPECT_EQ(generate({{"prompt", nullptr}})->json()["done_reason"], "load");
  EXPECT_TRUE(api_.generator().requests(0).empty());
}

TEST_F(OllamaRoutes, WhatIsNotServedIsRefusedByName) {
  refuse(chat({{"format", "yaml"}}), "format");
  refuse(chat({{"format", {{"type", "objekt"}}}}), "format");
  refuse(chat({{"tools", Json::array({Json::object()})}}), "tools");
  refuse(chat({{"think", true}}), "think");
  refuse(chat({{"options", {{"num_gpu", 1}}}}), "options.num_gpu");
  refuse(chat({{"options", {{"mirostat", 2}}}}), "options.mirostat");
  refuse(chat({{"options", {{"num_ctx", 100'000}}}}), "options.num_ctx");
  refuse(chat({{"options", {{"temperature", -1}}}}), "options.temperature");
  refuse(chat({{"bogus", 1}}), "bogus");
  refuse(generate({{"suffix", "x"}}), "suffix");
  refuse(generate({{"template", "x"}}), "template");
  refuse(generate({{"context", {1, 2}}}), "context");
  refuse(generate({{"images", Json::array({"aGk="})}}), "images");
  refuse(chat({{"messages",
                Json::array({Json::object(
                    {{"role", "user"}, {"content", "hi"}, {"images", Json::array({"aGk="})}})})}}),
         "messages[0].images");
}

TEST_F(OllamaRoutes, AFormatIsWhatTheAnswerFollows) {
  EXPECT_EQ(chat({{"format", "json"}, {"stream", false}})->status(), 200);
  EXPECT_EQ(generate({{"format", {{"type", "boolean"}}}, {"stream", false}})->status(), 200);
  EXPECT_EQ(generate({{"format", ""}, {"stream", false}})->status(), 200);
  const auto requests = api_.generator().requests(3);
  EXPECT_TRUE(requests[0].grammar->start()->allowed()->allows(byte_token('{')));
  EXPECT_TRUE(requests[1].grammar->start()->allowed()->allows(byte_token('t')));
  EXPECT_EQ(requests[2].grammar, nullptr);
}

TEST_F(OllamaRoutes, TheModelIsListedShownAndFoundWithItsTag) {
  const Json model = api_.call("GET", "/api/tags")->json()["models"].at(0);
  EXPECT_EQ(model["name"], "tiny");
  EXPECT_EQ(model["size"], 4000);
  EXPECT_EQ(model["details"]["quantization_level"], "Q4_0");
  EXPECT_EQ(api_.call("GET", "/api/ps")->json()["models"].at(0)["context_length"],
            ScriptedGenerator::kContext);
  const Json shown = api_.call("POST", "/api/show", {{"model", "tiny:latest"}})->json();
  EXPECT_EQ(shown["model_info"]["general.parameter_count"], 1000);
  EXPECT_EQ(shown["capabilities"], Json({"completion", "tools"}));
  // As Ollama's own client writes it, and as its older versions did.
  const Json literal = {{"model", "tiny"},  {"system", ""},       {"template", ""},
                        {"verbose", false}, {"options", nullptr}, {"name", ""}};
  EXPECT_EQ(api_.call("POST", "/api/show", literal)->json(), shown);
  EXPECT_EQ(api_.call("POST", "/api/show", {{"model", ""}, {"name", "tiny"}})->json(), shown);
  EXPECT_EQ(api_.call("POST", "/api/show", {{"model", ""}})->status(), 400);
  EXPECT_EQ(api_.call("POST", "/api/show", {{"model", "tiny"}, {"system", "x"}})->status(), 400);
  EXPECT_EQ(api_.call("GET", "/")->response().body, "Ollama is running");
  EXPECT_EQ(api_.call("GET", "/api/version")->json()["version"], "1.2.3");
  EXPECT_EQ(chat({{"model", "tiny:latest"}, {"stream", false}})->status(), 200);
  EXPECT_EQ(chat({{"model", "tiny:other"}})->status(), 404);
  EXPECT_EQ(api_.call("POST", "/api/show", {{"model", "other"}})->status(), 404);
}

TEST_F(OllamaRoutes, AnAnswerThatBreaksOffEndsWithAnError) {
  ApiFixture api;
  const Json body = {{"model", "tiny"}, {"messages", said("hi")}};
  const auto answer = api.start("POST", "/api/chat", body.dump());
  api.generator().requests(1);
  api.generator().give(0, one_);
  api.generator().fail(0, Status::group("rank 1 left"));
  answer->wait();
  EXPECT_EQ(lines(answer->streamed()).back()["error"], "rank 1 left");
}

TEST(OllamaTime, IsWrittenInUtc) { EXPECT_EQ(utc_time(0), "1970-01-01T00:00:00Z"); }

TEST_F(OllamaRoutes, ErrorsThatNoRouteFindsHaveTheShapeToo) {
  const auto keys = ApiKeys::parse("the-right-key");
  const auto server = api_.listen({.body_bytes_max = 10}, {.keys = *keys});
  const std::string key = "x-api-key: the-right-key\r\n";
  const std::vector<std::tuple<int, std::string, std::string>> cases = {
      {401, "POST /api/chat", ""},
      {404, "POST /api/pull", key},
      {405, "GET /api/chat", key},
      {403, "GET /api/tags", key + "Origin: https://evil.example\r\n"},
      {413, "POST /api/embed", key + "Content-Length: 11\r\n"}};
  for (const auto& [status, line, headers] : cases) {
    RawClient client(server->port());
    client.send(line + " HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n");
    const auto answer = client.read_answer();
    EXPECT_EQ(answer.status, status);
    EXPECT_TRUE(Json::parse(answer.body, nullptr, false)["error"].is_string()) << answer.body;
  }
}

}  // namespace
}  // namespace shoal::server

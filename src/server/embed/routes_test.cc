#include "server/embed/routes.h"

#include <gmock/gmock.h>

#include <cmath>

#include "server/embed/embed_request.h"
#include "server/embed/embedding_text.h"
#include "server/testing/api_fixture.h"

namespace shoal::server {
namespace {

using ::testing::HasSubstr;
using Ids = std::vector<runtime::TokenId>;

// What a text of so many tokens becomes.
Json unit(size_t tokens, size_t dimensions = ScriptedGenerator::kHiddenSize) {
  const Ids text(tokens, 1);
  const auto values = normalize(ScriptedGenerator::embedding_of(text), dimensions);
  return Json::parse(to_numbers(values));
}

class EmbeddingRoutes : public ::testing::Test {
 protected:
  ApiFixture::Answer embed(const Json& input, const Json& extra = Json::object()) {
    Json json = {{"model", "tiny"}, {"input", input}};
    json.update(extra);
    return api_.call("POST", "/v1/embeddings", json);
  }
  ApiFixture::Answer ollama(const Json& extra) {
    Json json = {{"model", "tiny"}};
    json.update(extra);
    return api_.call("POST", "/api/embed", json);
  }
  void refuse(const ApiFixture::Answer& answer, std::string_view param, std::string_view words) {
    ASSERT_EQ(answer->status(), 400);
    const Json error = answer->json()["error"];
    EXPECT_EQ(error["param"], param);
    EXPECT_THAT(error["message"].get<std::string>(), HasSubstr(std::string(words)));
  }
  void refuse_ollama(const ApiFixture::Answer& answer, std::string_view words) {
    ASSERT_EQ(answer->status(), 400);
    EXPECT_THAT(answer->json()["error"].get<std::string>(), HasSubstr(std::string(words)));
  }

  ApiFixture api_;
};

TEST_F(EmbeddingRoutes, ATextBecomesAVectorOfLengthOne) {
  const auto answer = embed("hi");  // BOS and two bytes
  ASSERT_EQ(answer->status(), 200) << answer->response().body;
  const Json json = answer->json();
  EXPECT_EQ(json["object"], "list");
  EXPECT_EQ(json["model"], "tiny");
  EXPECT_EQ(json["usage"], Json({{"prompt_tokens", 3}, {"total_tokens", 3}}));
  ASSERT_EQ(json["data"].size(), 1U);
  EXPECT_EQ(json["data"][0]["object"], "embedding");
  EXPECT_EQ(json["data"][0]["index"], 0);
  EXPECT_EQ(json["data"][0]["embedding"], unit(3));
  EXPECT_EQ(api_.generator().embeddings()[0].pooling, model::Pooling::kLast);
}

TEST_F(EmbeddingRoutes, InputsInAllTheirForms) {
  const Json texts = embed({"a", "abcd", "ab"})->json();
  ASSERT_EQ(texts["data"].size(), 3U);
  const std::vector<size_t> tokens = {2, 5, 3};
  for (size_t i = 0; i < tokens.size(); ++i) {
    EXPECT_EQ(texts["data"][i]["index"], i);
    EXPECT_EQ(texts["data"][i]["embedding"], unit(tokens[i]));
  }
  EXPECT_EQ(texts["usage"]["total_tokens"], 10);
  EXPECT_EQ(embed({5, 6, 7})->json()["data"][0]["embedding"], unit(3));
  EXPECT_EQ(api_.generator().embeddings()[3].prompt, (Ids{5, 6, 7})) << "used as they are";
  const Json ids = embed(Json::array({Json::array({5}), Json::array({6, 7})}))->json();
  EXPECT_EQ(ids["data"][0]["embedding"], unit(1));
  EXPECT_EQ(ids["data"][1]["embedding"], unit(2));
}

TEST_F(EmbeddingRoutes, ThousandsOfTextsAreTaken) {
  const Json json = embed(Json(std::vector<std::string>(kTextsMax, "a")))->json();
  ASSERT_EQ(json["data"].size(), kTextsMax);
  EXPECT_EQ(json["data"][kTextsMax - 1]["index"], kTextsMax - 1);
  EXPECT_EQ(json["data"][kTextsMax - 1]["embedding"], unit(2));
  refuse(embed(Json(std::vector<std::string>(kTextsMax + 1, "a"))), "input", "at most 2048");
}

TEST_F(EmbeddingRoutes, Base64HasTheSameFloats) {
  const auto values = normalize(ScriptedGenerator::embedding_of(Ids(3, 1)), 3);
  EXPECT_EQ(embed("hi", {{"encoding_format", "base64"}})->json()["data"][0]["embedding"],
            to_base64(values));
  EXPECT_EQ(embed("hi", {{"encoding_format", "float"}})->json()["data"][0]["embedding"], unit(3));
}

TEST_F(EmbeddingRoutes, DimensionsCutTheVectorAndScaleItAnew) {
  EXPECT_EQ(embed("hi", {{"dimensions", 2}})->json()["data"][0]["embedding"], unit(3, 2));
  EXPECT_EQ(embed("hi", {{"dimensions", 3}, {"user", "me"}})->status(), 200);
  refuse(embed("hi", {{"dimensions", 4}}), "dimensions", "at most 3");
  refuse(embed("hi", {{"dimensions", 0}}), "dimensions", "from 1");
}

TEST_F(EmbeddingRoutes, WhatIsWrongIsRefusedByName) {
  for (const Json& bad : {Json(""), Json::array({"a", ""}), Json::array(), Json(nullptr), Json(7),
                          Json::array({Json::array()}), Json::array({-1}), Json::array({1.5})}) {
    refuse(embed(bad), "input", "");
  }
  refuse(embed({100'000}), "input", "not in the vocabulary");
  const Json mixed = Json::array({Json::array({5}), Json::array({100'000})});
  refuse(embed(mixed), "input", "input[1]: the text: token 100000");
  refuse(embed("hi", {{"encoding_format", "int8"}}), "encoding_format", "float, base64");
  refuse(embed("hi", {{"bogus", 1}}), "bogus", "");
  EXPECT_EQ(embed("hi", {{"model", "other"}})->status(), 404);
  EXPECT_EQ(embed("hi", {{"model", "tiny:latest"}})->status(), 404) << "that is Ollama's way";
  EXPECT_TRUE(api_.generator().embeddings().empty());
}

TEST_F(EmbeddingRoutes, ATextBeyondTheContextIsRefusedWithBothNumbers) {
  const std::string fits(ScriptedGenerator::kContext - 1, 'x');
  EXPECT_EQ(embed(fits)->status(), 200) << "no room for an answer is needed";
  const auto answer = embed(fits + "x");
  refuse(answer, "input", "1001 tokens and the context holds 1000");
  EXPECT_EQ(answer->json()["error"]["code"], "context_length_exceeded");
}

TEST_F(EmbeddingRoutes, AFullQueueAndALostNodeAreTold) {
  api_.generator().refuse_after(0, Status::busy("full"));
  EXPECT_EQ(embed("hi")->status(), 429);
  ApiFixture api;
  api.generator().hold_embeddings();
  const auto answer =
      api.start("POST", "/v1/embeddings", Json({{"model", "tiny"}, {"input", {"a", "b"}}}).dump());
  api.generator().end_embedding(0);
  api.generator().end_embedding(1, Status::group("rank 1 left"));
  answer->wait();
  EXPECT_EQ(answer->status(), 503);
  EXPECT_THAT(answer->json()["error"]["message"].get<std::string>(), HasSubstr("rank 1 left"));
  EXPECT_EQ(api.service().phase(), Service::Phase::kFailed);
}

TEST_F(EmbeddingRoutes, AQueueThatIsFullMidwayIsTold) {
  for (const char* path : {"/v1/embeddings", "/api/embed"}) {
    ApiFixture api;
    api.generator().hold_embeddings();
    api.generator().refuse_after(1, Status::busy("full"));
    const Json body = {{"model", "tiny"}, {"input", {"a", "b"}}};
    const auto answer = api.start("POST", path, body.dump());
    api.generator().end_embedding(0);
    answer->wait();
    EXPECT_EQ(answer->status(), 429) << path;
    EXPECT_EQ(find_header(answer->response().headers, "Retry-After"), "3");
    EXPECT_EQ(api.service().phase(), Service::Phase::kReady);
  }
}

TEST_F(EmbeddingRoutes, AClientThatGoesEndsItsTexts) {
  api_.generator().hold_embeddings();
  const auto answer =
      api_.start("POST", "/v1/embeddings", Json({{"model", "tiny"}, {"input", {"a", "b"}}}).dump());
  answer->leave();
  answer->wait();
  EXPECT_EQ(api_.generator().embeddings()[1].sink, nullptr) << "it was told of the end";
}

TEST(EmbeddingModels, ArePooledAsTheySayOrRefused) {
  ApiFixture mean(true, {.size = 3, .pooling = model::Pooling::kMean});
  const Json body = {{"model", "tiny"}, {"input", "hi"}};
  EXPECT_EQ(mean.call("POST", "/v1/embeddings", body)->status(), 200);
  EXPECT_EQ(mean.generator().embeddings()[0].pooling, model::Pooling::kMean);
  ApiFixture other(true, {.size = 3, .unserved = "the pooling 'cls'"});
  for (const char* path : {"/v1/embeddings", "/api/embed"}) {
    const auto answer = other.call("POST", path, body);
    EXPECT_EQ(answer->status(), 400);
    EXPECT_THAT(answer->response().body, HasSubstr("the pooling 'cls', which is not served"));
  }
}

TEST_F(EmbeddingRoutes, OllamasRouteHasItsShape) {
  const Json json = ollama({{"input", {"a", "abcd"}}, {"model", "tiny:latest"}})->json();
  EXPECT_EQ(json["model"], "tiny:latest");
  EXPECT_EQ(json["embeddings"], Json::array({unit(2), unit(5)}));
  EXPECT_EQ(json["prompt_eval_count"], 7);
  EXPECT_TRUE(json["total_duration"].is_number_integer());
  EXPECT_EQ(ollama({{"input", "hi"}, {"dimensions", 1}})->json()["embeddings"],
            Json::array({unit(3, 1)}));
  EXPECT_EQ(ollama({{"input", ""}})->json()["embeddings"], Json::array());
  EXPECT_EQ(ollama(Json::object())->json()["embeddings"], Json::array());
  refuse_ollama(ollama({{"input", {"a", ""}}}), "input[1]");
  refuse_ollama(ollama({{"input", {"a", 1}}}), "input");
  refuse_ollama(ollama({{"input", "a"}, {"dimensions", 4}}), "dimensions");
  refuse_ollama(ollama({{"input", "a"}, {"options", {{"num_gpu", 1}}}}), "options.num_gpu");
  refuse_ollama(ollama({{"input", "a"}, {"bogus", 1}}), "bogus");
}

TEST_F(EmbeddingRoutes, OllamasOlderRouteGivesOneVector) {
  const Json json =
      api_.call("POST", "/api/embeddings", {{"model", "tiny"}, {"prompt", "hi"}})->json();
  EXPECT_EQ(json, Json({{"embedding", unit(3)}}));
  EXPECT_EQ(api_.call("POST", "/api/embeddings", {{"model", "tiny"}})->json(),
            Json({{"embedding", Json::array()}}));
}

TEST_F(EmbeddingRoutes, OllamaCutsLongTextsUnlessToldNotTo) {
  const std::string text(ScriptedGenerator::kContext + 50, 'x');
  const Json cut = ollama({{"input", text}})->json();
  EXPECT_EQ(cut["prompt_eval_count"], ScriptedGenerator::kContext);
  const Json shorter = ollama({{"input", text}, {"options", {{"num_ctx", 20}}}})->json();
  EXPECT_EQ(shorter["embeddings"], Json::array({unit(20)}));
  refuse_ollama(ollama({{"input", text}, {"truncate", false}}), "1051 tokens");
  refuse_ollama(ollama({{"input", text}, {"options", {{"num_ctx", 2000}}}}), "options.num_ctx");
}

TEST_F(EmbeddingRoutes, AreCountedInTheMetrics) {
  EXPECT_EQ(embed({"a", "b"})->status(), 200);
  const std::string text = api_.metrics().render(nullptr);
  EXPECT_THAT(text, HasSubstr("vllm:request_success_total{finished_reason=\"stop\","
                              "model_name=\"tiny\"} 2\n"));
  EXPECT_THAT(text, HasSubstr("vllm:request_prompt_tokens_sum{model_name=\"tiny\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("vllm:request_generation_tokens_count{model_name=\"tiny\"} 0\n"));
}

}  // namespace
}  // namespace shoal::server

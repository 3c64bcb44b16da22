#include "server/own/routes.h"

#include <gmock/gmock.h>

#include "server/testing/api_fixture.h"

namespace shoal::server {
namespace {

using ::testing::HasSubstr;

// A conversation of one message.
Json said(std::string_view role, Json content) {
  return Json::array({Json::object({{"role", role}, {"content", std::move(content)}})});
}

TEST(OwnRoutes, C53HealthFollowsTheModel) {
  ApiFixture api(false);
  EXPECT_EQ(api.call("GET", "/health")->status(), 503);
  EXPECT_EQ(api.call("GET", "/health")->json()["status"], "loading");
  EXPECT_EQ(api.call("GET", "/ready")->status(), 503);
  api.load();
  EXPECT_EQ(api.call("GET", "/health")->status(), 200);
  EXPECT_EQ(api.call("GET", "/ready")->json()["status"], "ok");
  api.service().set_failed(Status::group("rank 1 left"));
  EXPECT_EQ(api.call("GET", "/health")->status(), 503);
  EXPECT_EQ(api.call("GET", "/health")->json()["error"], "rank 1 left");
}

TEST(OwnRoutes, ADrainingServerIsNotReady) {
  ApiFixture api;
  api.service().set_draining();
  EXPECT_EQ(api.call("GET", "/ready")->status(), 503);
}

TEST(OwnRoutes, MetricsAreThereFromTheStart) {
  ApiFixture api(false);
  EXPECT_EQ(api.call("GET", "/metrics")->status(), 200);
  api.load();
  EXPECT_THAT(api.call("GET", "/metrics")->response().body,
              HasSubstr("vllm:kv_cache_usage_perc{model_name=\"tiny\"} 0.25"));
}

TEST(OwnRoutes, TokensGoBothWays) {
  ApiFixture api;
  const Json tokens = api.call("POST", "/tokenize", {{"prompt", "ab"}})->json();
  EXPECT_EQ(tokens["tokens"], Json({1, byte_token('a'), byte_token('b')}));
  EXPECT_EQ(tokens["count"], 3);
  EXPECT_EQ(tokens["max_model_len"], ScriptedGenerator::kContext);
  EXPECT_EQ(api.call("POST", "/tokenize", {{"prompt", "a"}, {"add_special_tokens", false}})
                ->json()["tokens"],
            Json({byte_token('a')}));
  EXPECT_EQ(api.call("POST", "/detokenize", {{"tokens", {byte_token('a'), byte_token('b')}}})
                ->json()["prompt"],
            "ab");
}

TEST(OwnRoutes, AChatIsTokenizedAsItWouldBeAnswered) {
  ApiFixture api;
  const Json body = {{"messages", said("user", "hi")}};
  const std::string prompt = "user:hi\nassistant:";
  EXPECT_EQ(api.call("POST", "/tokenize", body)->json()["count"], prompt.size() + 1);
}

TEST(OwnRoutes, BadTokensAndFieldsAreRefused) {
  ApiFixture api;
  for (const Json& body :
       {Json::object(), Json({{"prompt", 5}}), Json({{"prompt", "a"}, {"bogus", 1}}),
        Json({{"prompt", "a"}, {"messages", said("user", "hi")}})}) {
    EXPECT_EQ(api.call("POST", "/tokenize", body)->status(), 400) << body;
  }
  for (const Json& tokens : {Json("a"), Json({-1}), Json({100'000}), Json({1.5}), Json({"a"})}) {
    EXPECT_EQ(api.call("POST", "/detokenize", {{"tokens", tokens}})->status(), 400) << tokens;
  }
}

}  // namespace
}  // namespace shoal::server

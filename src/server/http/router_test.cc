#include "server/http/router.h"

#include <gmock/gmock.h>

namespace shoal::server {
namespace {

Router make_router() {
  Router router;
  for (const auto& [method, pattern] :
       {std::pair("GET", "/v1/models"), std::pair("GET", "/v1/models/*"),
        std::pair("POST", "/v1/chat"), std::pair("DELETE", "/v1/chat")}) {
    router.add({.method = method, .pattern = pattern, .handler = {}});
  }
  return router;
}

TEST(Router, FindsByMethodAndPath) {
  const Router router = make_router();
  ASSERT_NE(router.find("GET", "/v1/models").route, nullptr);
  EXPECT_EQ(router.find("GET", "/v1/models").route->pattern, "/v1/models");
  EXPECT_NE(router.find("HEAD", "/v1/models").route, nullptr);
  EXPECT_NE(router.find("POST", "/v1/chat").route, nullptr);
}

TEST(Router, TheStarTakesTheRestDecoded) {
  const Router router = make_router();
  EXPECT_EQ(router.find("GET", "/v1/models/org/name%20x").tail, "org/name x");
  EXPECT_EQ(router.find("GET", "/v1/models/").route, nullptr);
  EXPECT_EQ(router.find("GET", "/v1/models/%2").route, nullptr);
}

TEST(Router, TellsAWrongPathFromAWrongMethod) {
  const Router router = make_router();
  EXPECT_EQ(router.find("GET", "/nothing").error.status, 404);
  const Router::Match match = router.find("GET", "/v1/chat");
  EXPECT_EQ(match.error.status, 405);
  EXPECT_EQ(match.allowed, "POST, DELETE");
}

TEST(Router, ErrorsAreWrittenAsThePathsApiDoes) {
  Router router;
  const ErrorWriter other = [](const ApiError&) { return Response{}; };
  router.set_errors("/api", other);
  for (const char* path : {"/api", "/api/", "/api/chat", "/api/no/such"}) {
    EXPECT_EQ(router.errors_at(path), other) << path;
  }
  for (const char* path : {"", "/", "/apis", "/v1/api"}) {
    EXPECT_EQ(router.errors_at(path), &error_response) << path;
  }
}

}  // namespace
}  // namespace shoal::server

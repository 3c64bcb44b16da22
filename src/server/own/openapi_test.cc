#include "server/own/openapi.h"

#include <gmock/gmock.h>

#include <set>

#include "server/testing/api_fixture.h"

namespace shoal::server {
namespace {

Json description() { return Json::parse(openapi_json("1.2.3"), nullptr, false); }

TEST(OpenApi, DescribesEveryRouteAndNoOther) {
  const Json json = description();
  EXPECT_EQ(json["info"]["version"], "1.2.3");
  std::set<std::string> described;
  for (const auto& [path, operations] : json["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      std::string route = method;
      described.insert(route.append(" ").append(path));
    }
  }
  std::set<std::string> served;
  ApiFixture api;
  for (const Route& route : api.router().routes()) {
    std::string name = route.method == "GET" ? "get " : "post ";
    name += route.pattern;
    if (name.ends_with("/*")) name.replace(name.size() - 1, 1, "{id}");
    served.insert(name);
  }
  EXPECT_EQ(described, served);
}

TEST(OpenApi, RefersOnlyToWhatIsThere) {
  const Json json = description();
  const Json& schemas = json["components"]["schemas"];
  ASSERT_TRUE(schemas.is_object());
  const std::string text = json.dump();
  const std::string reference = "#/components/schemas/";
  for (size_t at = text.find(reference); at != std::string::npos;
       at = text.find(reference, at + 1)) {
    const size_t begin = at + reference.size();
    EXPECT_TRUE(schemas.contains(text.substr(begin, text.find('"', begin) - begin)));
  }
}

TEST(OpenApi, ErrorsAreDescribedAsTheyAreWritten) {
  const Json json = description();
  ApiFixture api;
  for (const auto& [path, operations] : json["paths"].items()) {
    for (const auto& [method, operation] : operations.items()) {
      const std::string reference =
          operation["responses"]["default"]["content"]["application/json"]["schema"]["$ref"];
      const Json& schema =
          json["components"]["schemas"][reference.substr(reference.rfind('/') + 1)]["properties"];
      const Json error =
          Json::parse(api.router().errors_at(path)({.message = "m"}).body, nullptr, false);
      EXPECT_EQ(schema.contains("type"), error.contains("type")) << path;
      EXPECT_EQ(schema["error"]["type"], error["error"].is_string() ? "string" : "object") << path;
    }
  }
}

// A request of every field that the schema names is taken: no field is described and refused.
TEST(OpenApi, EveryFieldOfAChatIsKnown) {
  const Json schemas = description()["components"]["schemas"];
  ApiFixture api;
  api.generator().answer_at_once({{ApiFixture::word(0)}});
  Json fields = schemas["Generation"]["properties"];
  fields.update(schemas["ChatRequest"]["allOf"][1]["properties"]);
  Json request = {{"model", "tiny"},
                  {"messages", Json::array({Json::object({{"role", "user"}, {"content", "hi"}})})}};
  for (const auto& [name, schema] : fields.items()) {
    if (!request.contains(name)) request[name] = nullptr;
  }
  EXPECT_EQ(api.call("POST", "/v1/chat/completions", request)->status(), 200);
}

TEST(OpenApi, EveryFieldOfItsOtherSchemasIsKnown) {
  const Json schemas = description()["components"]["schemas"];
  ApiFixture api;
  api.generator().answer_at_once({{ApiFixture::word(0)}});
  const std::vector<std::pair<const char*, const char*>> routes = {
      {"ResponsesRequest", "/v1/responses"},
      {"EmbeddingsRequest", "/v1/embeddings"},
      {"OllamaEmbed", "/api/embed"},
      {"OllamaEmbeddings", "/api/embeddings"}};
  for (const auto& [schema, path] : routes) {
    const Json& fields = schemas[schema]["properties"];
    Json request = Json::object();
    for (const auto& [name, field] : fields.items()) request[name] = nullptr;
    request["model"] = "tiny";
    if (fields.contains("input")) request["input"] = "hi";
    EXPECT_EQ(api.call("POST", path, request)->status(), 200) << path;
  }
}

}  // namespace
}  // namespace shoal::server

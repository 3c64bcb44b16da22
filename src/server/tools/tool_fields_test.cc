#include "server/tools/tool_fields.h"

#include <gmock/gmock.h>

namespace shoal::server {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

Json function(const std::string& name, const Json& extra = Json::object()) {
  Json json = {{"name", name}};
  json.update(extra);
  return {{"type", "function"}, {"function", std::move(json)}};
}

ApiResult<ToolOptions> read_body(const std::string& body) {
  const Json json = Json::parse(body);
  Fields fields(json);
  ToolOptions tools;
  read_tools(&fields, body, &tools);
  read_tool_choice(&fields, &tools);
  if (auto error = fields.finish()) return std::move(*error);
  return tools;
}
ApiResult<ToolOptions> read(const Json& tools, const Json& extra = Json::object()) {
  Json json = {{"tools", tools}};
  json.update(extra);
  return read_body(json.dump());
}

// The field at fault.
std::string fault(const Json& tools, const Json& extra = Json::object()) {
  const auto result = read(tools, extra);
  return result.is_ok() ? "" : result.error().param.value_or("?");
}
std::string parameters_fault(const Json& parameters) {
  return fault(Json::array({function("f", {{"parameters", parameters}})}));
}

TEST(ToolFields, C32AFunctionIsKeptAsTheClientWroteIt) {
  const auto tools =
      read_body(R"({"tools": [ {"type":"function", "function":{"name":"f","description":"é",
      "parameters":{"type":"object","properties":{"z":{"type":"string"},"a":{"type":"null"}}}}} ]})");
  ASSERT_TRUE(tools.is_ok()) << tools.error().message;
  const Tool& tool = (*tools).tools.at(0);
  EXPECT_EQ(tool.name, "f");
  EXPECT_THAT(tool.definition, HasSubstr(R"({"type":"function", "function":{"name":"f")"));
  EXPECT_EQ(tool.parameters,
            R"({"type":"object","properties":{"z":{"type":"string"},"a":{"type":"null"}}})");
}

TEST(ToolFields, ChoicesAreAutoNoneRequiredOrAName) {
  const Json two = Json::array({function("f"), function("g")});
  EXPECT_EQ((*read(two)).choice, ToolChoice::kAuto);
  EXPECT_TRUE((*read(two)).are_offered());
  EXPECT_FALSE((*read(two, {{"tool_choice", "none"}})).are_offered());
  EXPECT_EQ((*read(two, {{"tool_choice", "required"}})).choice, ToolChoice::kRequired);
  const auto named =
      read(two, {{"tool_choice", {{"type", "function"}, {"function", {{"name", "g"}}}}}});
  EXPECT_EQ((*named).choice, ToolChoice::kNamed);
  EXPECT_EQ((*named).named, "g");
  EXPECT_TRUE((*named).is_single_call());
  EXPECT_FALSE((*read(two)).is_single_call());
  EXPECT_TRUE((*read(two, {{"parallel_tool_calls", false}})).is_single_call());
}

TEST(ToolFields, C50AFunctionThatIsNotThereCannotBeChosen) {
  const Json choice = {{"type", "function"}, {"function", {{"name", "g"}}}};
  EXPECT_EQ(fault(Json::array({function("f")}), {{"tool_choice", choice}}),
            "tool_choice.function.name");
  EXPECT_EQ(fault(Json::array(), {{"tool_choice", "required"}}), "tool_choice");
  EXPECT_EQ(fault(Json::array({function("f")}), {{"tool_choice", "always"}}), "tool_choice");
  EXPECT_EQ(fault(Json::array({function("f")}), {{"tool_choice", 1}}), "tool_choice");
  EXPECT_EQ(fault(Json::array({function("f")}), {{"tool_choice", {{"type", "allowed_tools"}}}}),
            "tool_choice.type");
}

TEST(ToolFields, WhatIsWrongIsNamed) {
  EXPECT_EQ(fault("x"), "tools");
  EXPECT_EQ(fault(Json::array({1})), "tools");
  EXPECT_EQ(fault(Json::array({Json::object()})), "tools[0].function");
  EXPECT_EQ(fault(Json::array({function("")})), "tools[0].function.name");
  EXPECT_EQ(fault(Json::array({function("a b")})), "tools[0].function.name");
  EXPECT_EQ(fault(Json::array({function(std::string(129, 'x'))})), "tools[0].function.name");
  EXPECT_EQ(fault(Json::array({function("f"), function("f")})), "tools[1].function.name");
  EXPECT_EQ(fault(Json::array({function("f", {{"bogus", 1}})})), "tools[0].function.bogus");
  EXPECT_EQ(fault(Json::array({{{"type", "web_search"}}})), "tools[0].type");
  Json many = Json::array();
  for (size_t i = 0; i <= kToolsMax; ++i) many.push_back(function("f" + std::to_string(i)));
  EXPECT_EQ(fault(many), "tools");
}

TEST(ToolFields, C52ASchemaThatIsNoneIsRefused) {
  for (const Json& bad :
       std::vector<Json>{{{"type", "objekt"}},
                         {{"type", "string"}},
                         {{"type", "object"}, {"properties", {{"a", {{"type", "strnig"}}}}}},
                         {{"properties", Json::array()}},
                         {{"properties", {{"a", 5}}}},
                         {{"anyOf", Json::array()}},
                         {{"properties", {{"a", {{"items", {{"type", 7}}}}}}}},
                         {{"$defs", {{"a", {{"type", "list"}}}}}}}) {
    EXPECT_EQ(parameters_fault(bad), "tools[0].function.parameters") << bad;
  }
  EXPECT_EQ(parameters_fault(5), "tools[0].function.parameters");
  for (const Json& good :
       std::vector<Json>{Json::object(),
                         {{"type", "object"},
                          {"properties", {{"a", {{"type", {"string", "null"}}}}, {"b", true}}}},
                         {{"properties", {{"type", {{"type", "string"}}}}}}}) {
    EXPECT_EQ(parameters_fault(good), "") << good;
  }
}

TEST(ToolFields, AFunctionWithoutParametersHasNone) {
  const auto tools = read(Json::array({function("f", {{"strict", true}})}));
  ASSERT_TRUE(tools.is_ok());
  ASSERT_THAT((*tools).tools, SizeIs(1));
  EXPECT_EQ(Json::parse((*tools).tools[0].parameters)["type"], "object");
  EXPECT_TRUE((*tools).tools[0].is_strict);
}

}  // namespace
}  // namespace shoal::server

#include "server/responses/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ApiResult<ResponsesRequest> parse(const Json& extra) {
  Json json = {{"model", "tiny"}, {"input", "hi"}};
  json.update(extra);
  return parse_responses_request(json.dump());
}

ResponsesRequest parsed(const Json& extra) {
  auto request = parse(extra);
  CHECK_MSG(request.is_ok(), request.error().message.c_str());
  return std::move(*request);
}

Json messages(const Json& extra) { return parsed(extra).input.template_input["messages"]; }

Json message(std::string_view role, const Json& content) {
  return Json::object({{"role", role}, {"content", content}});
}

void refuse(const Json& extra, std::string_view param, std::string_view words = "") {
  const auto request = parse(extra);
  ASSERT_FALSE(request.is_ok()) << extra;
  EXPECT_EQ(request.error().status, 400);
  EXPECT_EQ(request.error().param, param) << request.error().message;
  EXPECT_THAT(request.error().message, HasSubstr(std::string(words)));
}

TEST(ResponsesRequest, ATextIsAMessageOfTheUser) {
  EXPECT_EQ(messages(Json::object()), Json::array({message("user", "hi")}));
  EXPECT_EQ(messages({{"instructions", "brief"}}),
            Json::array({message("system", "brief"), message("user", "hi")}));
}

TEST(ResponsesRequest, OptionsArriveAndAreRepeated) {
  const ResponsesRequest request = parsed({{"temperature", 0.5},
                                           {"top_p", 0.25},
                                           {"max_output_tokens", 7},
                                           {"stream", true},
                                           {"metadata", {{"a", "b"}}},
                                           {"user", "me"},
                                           {"instructions", "brief"},
                                           {"include", {"message.output_text.logprobs"}},
                                           {"top_logprobs", 3}});
  EXPECT_EQ(request.options.sampling.temperature, 0.5F);
  EXPECT_EQ(request.options.sampling.top_p, 0.25F);
  EXPECT_EQ(request.options.tokens_max, 7U);
  EXPECT_TRUE(request.options.is_stream);
  EXPECT_TRUE(request.options.wants_logprobs);
  EXPECT_EQ(request.options.logprobs_top, 3U);
  EXPECT_EQ(request.echo.fields["temperature"], 0.5);
  EXPECT_EQ(request.echo.fields["max_output_tokens"], 7);
  EXPECT_EQ(request.echo.fields["metadata"]["a"], "b");
  EXPECT_EQ(request.echo.fields["user"], "me");
  EXPECT_EQ(request.echo.fields["instructions"], "brief");
  const ResponsesRequest plain = parsed(Json::object());
  EXPECT_EQ(plain.options.sampling.temperature, 1);
  EXPECT_FALSE(plain.options.tokens_max.has_value());
  EXPECT_EQ(plain.echo.fields["top_p"], 1);
  EXPECT_TRUE(plain.echo.fields["instructions"].is_null());
}

TEST(ResponsesRequest, WhatChangesNothingIsTaken) {
  const Json harmless = {
      {"store", false},
      {"background", false},
      {"previous_response_id", nullptr},
      {"tools", Json::array()},
      {"tool_choice", "auto"},
      {"parallel_tool_calls", false},
      {"truncation", "disabled"},
      {"service_tier", "auto"},
      {"text", {{"format", {{"type", "text"}}}, {"verbosity", "medium"}}},
      {"reasoning", {{"effort", "none"}, {"summary", "auto"}, {"mode", "standard"}}},
      {"include", {"reasoning.encrypted_content"}},
      {"stream_options", {{"include_obfuscation", false}}},
      {"safety_identifier", "x"},
      {"prompt_cache_key", "y"}};
  EXPECT_TRUE(parse(harmless).is_ok()) << parse(harmless).error().message;
}

Json function(const std::string& name) {
  return {{"type", "function"},
          {"name", name},
          {"description", "about " + name},
          {"strict", nullptr},
          {"parameters", {{"type", "object"}, {"properties", Json::object()}}}};
}

std::vector<std::string> names(const ToolOptions& tools) {
  std::vector<std::string> names;
  for (const Tool& tool : tools.tools) names.push_back(tool.name);
  return names;
}

TEST(ResponsesRequest, FunctionsAreTools) {
  Json strict = function("b");
  strict["strict"] = true;
  strict["async"] = false;
  strict["defer_loading"] = false;
  strict["allowed_callers"] = {"direct"};
  strict["output_schema"] = nullptr;
  const Json bare = {
      {"type", "function"}, {"name", "c"}, {"description", nullptr}, {"parameters", nullptr}};
  const ResponsesRequest request =
      parsed({{"tools", {function("a"), strict, bare}}, {"parallel_tool_calls", false}});
  const ToolOptions& tools = request.input.tools;
  ASSERT_THAT(names(tools), ElementsAre("a", "b", "c"));
  EXPECT_FALSE(tools.tools[0].is_strict);
  EXPECT_TRUE(tools.tools[1].is_strict);
  EXPECT_FALSE(tools.is_parallel);
  EXPECT_EQ(tools.choice, ToolChoice::kAuto);
  EXPECT_EQ(Json::parse(tools.tools[0].definition),
            Json({{"type", "function"},
                  {"function",
                   {{"name", "a"},
                    {"description", "about a"},
                    {"parameters", function("a")["parameters"]}}}}));
  EXPECT_EQ(tools.tools[2].definition, R"({"type": "function", "function": {"name": "c"}})");
  EXPECT_EQ(Json::parse(tools.tools[2].parameters)["type"], "object");
  // The answer repeats them as they came.
  EXPECT_EQ(Json::parse(request.echo.tools), Json({function("a"), strict, bare}));
  EXPECT_EQ(request.echo.tool_choice, R"("auto")");
  EXPECT_EQ(request.echo.fields["parallel_tool_calls"], false);
}

TEST(ResponsesRequest, AChoiceForcesForbidsOrRestricts) {
  const auto with = [](const Json& choice) {
    return parsed({{"tools", {function("a"), function("b")}}, {"tool_choice", choice}}).input.tools;
  };
  EXPECT_EQ(with("none").choice, ToolChoice::kNone);
  EXPECT_EQ(with("required").choice, ToolChoice::kRequired);
  const Json b = {{"type", "function"}, {"name", "b"}};
  EXPECT_EQ(with(b).choice, ToolChoice::kNamed);
  EXPECT_EQ(with(b).named, "b");
  const auto allowed = [&](std::string_view mode) {
    return with({{"type", "allowed_tools"}, {"mode", mode}, {"tools", Json::array({b})}});
  };
  EXPECT_EQ(allowed("auto").choice, ToolChoice::kAuto);
  EXPECT_THAT(names(allowed("auto")), ElementsAre("b"));
  EXPECT_EQ(allowed("required").choice, ToolChoice::kRequired);
}

// Clients offer these by themselves: what is said must tell their users what to do.
TEST(ResponsesRequest, ToolsOfOtherTypesAreRefusedWithTheSettingThatEndsThem) {
  const std::vector<std::pair<const char*, const char*>> cases = {
      {"web_search", "web_search is not served: it runs at OpenAI's own"},
      {"web_search_preview", "Codex: web_search = \"disabled\""},
      {"image_generation", "Codex: image_generation = false"},
      {"namespace", "one by one"},
      {"custom", "a function that takes one string"}};
  for (const auto& [type, words] : cases) {
    const Json other = {{"type", type}, {"name", "f"}};
    refuse({{"tools", Json::array({function("a"), other})}}, "tools[1].type", words);
  }
}

TEST(ResponsesRequest, ToolsThatAreWrongAreRefusedByName) {
  const auto tool = [](const Json& json) { return Json::object({{"tools", Json::array({json})}}); };
  const auto with = [](std::string_view name, const Json& value) {
    Json json = function("a");
    json[std::string(name)] = value;
    return Json::object({{"tools", Json::array({json})}});
  };
  refuse({{"tools", 1}}, "tools");
  refuse(tool("f"), "tools");
  refuse(tool({{"type", "mcp"}}), "tools[0].type", "function_call_output");
  refuse(tool(Json::object({{"name", "f"}})), "tools[0].type");
  refuse(with("name", "a b"), "tools[0].name");
  refuse(with("parameters", {{"type", "objekt"}}), "tools[0].parameters");
  refuse(with("strict", 1), "tools[0].strict");
  refuse(with("async", true), "tools[0].async");
  refuse(with("defer_loading", true), "tools[0].defer_loading");
  refuse(with("allowed_callers", {"programmatic"}), "tools[0].allowed_callers");
  refuse(with("output_schema", Json::object()), "tools[0].output_schema", "description");
  refuse(with("function", Json::object()), "tools[0].function");
  refuse({{"tools", {function("a"), function("a")}}}, "tools[1].name");
}

TEST(ResponsesRequest, ChoicesThatAreWrongAreRefusedByName) {
  const auto choice = [](const Json& json) {
    return Json::object({{"tools", Json::array({function("a")})}, {"tool_choice", json}});
  };
  const auto allowed = [&](const Json& tools, const Json& mode = "auto") {
    return choice({{"type", "allowed_tools"}, {"mode", mode}, {"tools", tools}});
  };
  const Json a = {{"type", "function"}, {"name", "a"}};
  const Json b = {{"type", "function"}, {"name", "b"}};
  refuse({{"tool_choice", "required"}}, "tool_choice", "no tools");
  refuse(choice("any"), "tool_choice");
  refuse(choice(1), "tool_choice");
  refuse(choice(Json::object({{"type", "mcp"}})), "tool_choice.type", "allowed_tools");
  refuse(choice(b), "tool_choice.name", "none of the tools");
  refuse(choice(Json::object({{"type", "function"}})), "tool_choice.name");
  refuse(allowed(Json::array()), "tool_choice.tools");
  refuse(allowed(Json::array({1})), "tool_choice.tools");
  refuse(allowed(Json::array({Json::object({{"type", "mcp"}})})), "tool_choice.tools[0].type");
  refuse(allowed(Json::array({b})), "tool_choice.tools[0].name");
  refuse(allowed(Json::array({a}), "none"), "tool_choice.mode");
}

TEST(ResponsesRequest, AFormatIsAGrammarAndRepeatedAsItWasWritten) {
  const auto with = [](const Json& format) {
    return parsed({{"text", {{"format", format}, {"verbosity", "medium"}}}});
  };
  const ResponsesRequest object = with({{"type", "json_object"}});
  ASSERT_TRUE(object.options.grammar.has_value());
  EXPECT_EQ(object.options.grammar->param, "text.format");
  EXPECT_FALSE(with({{"type", "text"}}).options.grammar.has_value());
  EXPECT_EQ(parsed(Json::object()).echo.text,
            R"({"format": {"type": "text"}, "verbosity": "medium"})");
  const auto request = parse_responses_request(
      R"({"model": "tiny", "input": "hi", "text": {"format": {"type": "json_schema", "name": "f",)"
      R"( "strict": true, "description": "d", "schema": {"type":"object",)"
      "\n"
      R"("properties":{"z":{},"a":{}}}}}})");
  ASSERT_TRUE(request.is_ok()) << request.error().message;
  EXPECT_EQ((*request).options.grammar->source.text,
            "{\"type\":\"object\",\n\"properties\":{\"z\":{},\"a\":{}}}");
  EXPECT_EQ(
      (*request).echo.text,
      R"({"format": {"type": "json_schema", "name": "f", "strict": true, )"
      R"("description": "d", "schema": {"type": "object", "properties": {"z": {}, "a": {}}}},)"
      R"( "verbosity": "medium"})");
}

TEST(ResponsesRequest, AnEffortIsHowLongToThink) {
  const ResponsesRequest request =
      parsed({{"reasoning", {{"effort", "low"}, {"summary", "auto"}}}});
  EXPECT_EQ(request.input.thinking.effort, "low");
  EXPECT_EQ(request.input.thinking.param, "reasoning.effort");
  EXPECT_EQ(request.echo.fields["reasoning"]["effort"], "low");
  EXPECT_FALSE(parsed(Json::object()).input.thinking.effort.has_value());
  EXPECT_TRUE(parsed(Json::object()).echo.fields["reasoning"]["effort"].is_null());
}

TEST(ResponsesRequest, WhatIsNotServedIsRefusedByNameWithAWayOut) {
  refuse({{"previous_response_id", "resp_1"}}, "previous_response_id", "as input");
  refuse({{"conversation", "conv_1"}}, "conversation", "as input");
  refuse({{"store", true}}, "store", "leave it out");
  refuse({{"background", true}}, "background", "stream");
  refuse({{"prompt", {{"id", "pmpt_1"}}}}, "prompt", "instructions");
  refuse({{"text", {{"format", {{"type", "xml"}}}}}}, "text.format.type");
  refuse({{"text", {{"format", {{"type", "json_schema"}, {"name", "f"}}}}}}, "text.format.schema");
  refuse({{"text", {{"format", {{"type", "json_object"}, {"bogus", 1}}}}}}, "text.format.bogus");
  refuse({{"text", {{"verbosity", "low"}}}}, "text.verbosity");
  refuse({{"text", {{"bogus", 1}}}}, "text.bogus");
  refuse({{"reasoning", {{"effort", "much"}}}}, "reasoning.effort", "xhigh");
  refuse({{"reasoning", {{"summary", "detailed"}}}}, "reasoning.summary", "as they are");
  refuse({{"reasoning", {{"generate_summary", "concise"}}}}, "reasoning.generate_summary");
  refuse({{"reasoning", {{"context", "all_turns"}}}}, "reasoning.context", "items");
  refuse({{"reasoning", {{"mode", "pro"}}}}, "reasoning.mode");
  refuse({{"truncation", "auto"}}, "truncation", "shorten");
  refuse({{"include", {"file_search_call.results"}}}, "include",
         "only message.output_text.logprobs");
  refuse({{"top_logprobs", 2}}, "top_logprobs", "include");
  refuse({{"top_logprobs", 21}}, "top_logprobs");
  refuse({{"service_tier", "flex"}}, "service_tier");
  refuse({{"stream_options", {{"include_obfuscation", true}}}},
         "stream_options.include_obfuscation");
  refuse({{"metadata", {{"a", 1}}}}, "metadata");
  refuse({{"max_output_tokens", 0}}, "max_output_tokens");
  refuse({{"temperature", 3}}, "temperature");
  refuse({{"model", nullptr}}, "model");
  refuse({{"bogus", 1}}, "bogus");
  refuse({{"max_tool_calls", 1}}, "max_tool_calls", "parallel_tool_calls");
  for (const char* name : {"prompt_cache_retention", "moderation", "image"}) {
    refuse({{name, 1}}, name);
  }
}

}  // namespace
}  // namespace shoal::server

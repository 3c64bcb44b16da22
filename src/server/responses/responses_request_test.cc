#include "server/responses/responses_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal::server {
namespace {

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

Json messages(const Json& extra) { return parsed(extra).template_input["messages"]; }

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

TEST(ResponsesRequest, ItemsAreMessagesAlsoAsAnAnswerGivesThem) {
  const Json part = {{"type", "input_text"}, {"text", "b"}};
  const Json answer = {{"id", "msg_1"},
                       {"type", "message"},
                       {"role", "assistant"},
                       {"status", "completed"},
                       {"phase", nullptr},
                       {"content", Json::array({{{"type", "output_text"},
                                                 {"text", "c"},
                                                 {"annotations", Json::array()},
                                                 {"logprobs", Json::array()}}})}};
  const Json input = Json::array({message("developer", "a"), message("user", Json::array({part})),
                                  answer, message("user", "d")});
  const auto text = [](std::string_view words) {
    return Json::array({Json::object({{"type", "text"}, {"text", words}})});
  };
  EXPECT_EQ(messages({{"input", input}}),
            Json::array({message("system", "a"), message("user", text("b")),
                         message("assistant", text("c")), message("user", "d")}));
}

TEST(ResponsesRequest, InputsThatCannotBeAnsweredAreRefusedByTheirPlace) {
  const auto item = [](const Json& json) { return Json::object({{"input", Json::array({json})}}); };
  refuse({{"input", nullptr}}, "input");
  refuse({{"input", Json::array()}}, "input");
  refuse({{"input", 7}}, "input");
  refuse(item("text"), "input[0]");
  refuse(item(message("alien", "hi")), "input[0].role");
  refuse(item(message("user", nullptr)), "input[0].content");
  refuse(item(message("user", Json::array())), "input[0].content");
  refuse(item(message("user", Json::array({Json::object({{"type", "input_image"}})}))),
         "input[0].content[0].type", "input_image");
  refuse(item(message("user", Json::array({Json::object({{"type", "input_text"}})}))),
         "input[0].content[0].text");
  refuse(item({{"type", "function_call_output"}, {"call_id", "x"}, {"output", "1"}}),
         "input[0].type", "tools");
  refuse(item({{"type", "item_reference"}, {"id", "x"}}), "input[0].type", "send the item itself");
  refuse(item({{"type", "reasoning"}, {"id", "x"}}), "input[0].type", "reasoning");
  Json named = message("user", "hi");
  named["bogus"] = 1;
  refuse(item(named), "input[0].bogus");
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
  EXPECT_EQ(request.echo["temperature"], 0.5);
  EXPECT_EQ(request.echo["max_output_tokens"], 7);
  EXPECT_EQ(request.echo["metadata"]["a"], "b");
  EXPECT_EQ(request.echo["user"], "me");
  EXPECT_EQ(request.echo["instructions"], "brief");
  const ResponsesRequest plain = parsed(Json::object());
  EXPECT_EQ(plain.options.sampling.temperature, 1);
  EXPECT_FALSE(plain.options.tokens_max.has_value());
  EXPECT_EQ(plain.echo["top_p"], 1);
  EXPECT_TRUE(plain.echo["instructions"].is_null());
}

TEST(ResponsesRequest, WhatChangesNothingIsTaken) {
  const Json harmless = {{"store", false},
                         {"background", false},
                         {"previous_response_id", nullptr},
                         {"tools", Json::array()},
                         {"tool_choice", "auto"},
                         {"parallel_tool_calls", false},
                         {"truncation", "disabled"},
                         {"service_tier", "auto"},
                         {"text", {{"format", {{"type", "text"}}}, {"verbosity", "medium"}}},
                         {"reasoning", {{"effort", "none"}, {"summary", nullptr}}},
                         {"include", Json::array()},
                         {"stream_options", {{"include_obfuscation", false}}},
                         {"safety_identifier", "x"},
                         {"prompt_cache_key", "y"}};
  EXPECT_TRUE(parse(harmless).is_ok()) << parse(harmless).error().message;
}

TEST(ResponsesRequest, WhatIsNotServedIsRefusedByNameWithAWayOut) {
  refuse({{"previous_response_id", "resp_1"}}, "previous_response_id", "as input");
  refuse({{"conversation", "conv_1"}}, "conversation", "as input");
  refuse({{"store", true}}, "store", "leave it out");
  refuse({{"background", true}}, "background", "stream");
  refuse({{"prompt", {{"id", "pmpt_1"}}}}, "prompt", "instructions");
  refuse({{"tools", Json::array({Json::object({{"type", "function"}, {"name", "f"}})})}}, "tools");
  refuse({{"tool_choice", "required"}}, "tool_choice");
  refuse({{"text", {{"format", {{"type", "json_object"}}}}}}, "text.format");
  refuse({{"text", {{"verbosity", "low"}}}}, "text.verbosity");
  refuse({{"text", {{"bogus", 1}}}}, "text.bogus");
  refuse({{"reasoning", {{"effort", "high"}}}}, "reasoning.effort");
  refuse({{"truncation", "auto"}}, "truncation", "shorten");
  refuse({{"include", {"reasoning.encrypted_content"}}}, "include");
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
  for (const char* name : {"max_tool_calls", "prompt_cache_retention", "moderation", "image"}) {
    refuse({{name, 1}}, name);
  }
}

}  // namespace
}  // namespace shoal::server

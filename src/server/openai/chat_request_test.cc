#include "server/openai/chat_request.h"

#include <gmock/gmock.h>

namespace shoal::server {
namespace {

using ::testing::HasSubstr;

// A conversation of one message.
Json said(std::string_view role, Json content) {
  return Json::array({Json::object({{"role", role}, {"content", std::move(content)}})});
}

// The smallest request, with one member more or changed.
Json with(const std::string& name, Json value) {
  Json json = {{"model", "m"}, {"messages", said("user", "hi")}};
  json[name] = std::move(value);
  return json;
}

ApiResult<ChatRequest> parse(const Json& json) { return parse_chat_request(json.dump()); }

// The name of the field that is at fault; empty where nothing is.
std::string fault(const Json& json) {
  const auto request = parse(json);
  if (request.is_ok()) return "";
  EXPECT_EQ(request.error().status, 400);
  EXPECT_EQ(request.error().type, "invalid_request_error");
  return request.error().param.value_or("?");
}

std::string message_fault(const Json& message) {
  return fault(with("messages", Json::array({message})));
}

TEST(ChatRequest, HasTheDocumentedDefaults) {
  const auto request = parse(with("model", "m"));
  ASSERT_TRUE(request.is_ok());
  const GenerationOptions& options = (*request).options;
  EXPECT_EQ(options.sampling.temperature, 1);
  EXPECT_EQ(options.sampling.top_p, 1);
  EXPECT_EQ(options.choices, 1U);
  EXPECT_FALSE(options.is_stream);
  EXPECT_FALSE(options.tokens_max.has_value());
  EXPECT_FALSE(options.sampling.seed.has_value());
}

TEST(ChatRequest, EveryHonouredFieldArrives) {
  Json json = with("temperature", 0.5);
  json.update({{"top_p", 0.9},
               {"top_k", 40},
               {"min_p", 0.1},
               {"repetition_penalty", 1.1},
               {"presence_penalty", 0.5},
               {"frequency_penalty", -0.5},
               {"seed", 7},
               {"n", 3},
               {"stop", {"a", "b"}},
               {"logit_bias", {{"5", -100}}},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"logprobs", true},
               {"top_logprobs", 20},
               {"max_completion_tokens", 9},
               {"ignore_eos", true},
               {"user", "u"},
               {"chat_template_kwargs", {{"enable_thinking", false}}}});
  const auto request = parse(json);
  ASSERT_TRUE(request.is_ok()) << request.error().message;
  const GenerationOptions& options = (*request).options;
  EXPECT_EQ(options.sampling.temperature, 0.5F);
  EXPECT_EQ(options.sampling.top_p, 0.9F);
  EXPECT_EQ(options.sampling.top_k, 40);
  EXPECT_EQ(options.sampling.min_p, 0.1F);
  EXPECT_EQ(options.sampling.repetition_penalty, 1.1F);
  EXPECT_EQ(options.sampling.presence_penalty, 0.5F);
  EXPECT_EQ(options.sampling.frequency_penalty, -0.5F);
  EXPECT_EQ(options.sampling.seed, 7U);
  EXPECT_EQ(options.sampling.logit_bias.at(0).id, 5);
  EXPECT_EQ(options.sampling.logit_bias.at(0).bias, -100);
  EXPECT_EQ(options.choices, 3U);
  EXPECT_THAT(options.stops, ::testing::ElementsAre("a", "b"));
  EXPECT_TRUE(options.is_stream && options.includes_usage && options.ignores_end);
  EXPECT_EQ(options.logprobs_top, 20U);
  EXPECT_EQ(options.tokens_max, 9U);
  EXPECT_EQ((*request).input.template_input["enable_thinking"], false);
}

TEST(ChatRequest, ValuesOutOfRangeOrOfAnotherTypeAreRefusedByName) {
  const std::vector<std::pair<std::string, Json>> bad = {
      {"temperature", -0.1},
      {"temperature", 2.1},
      {"temperature", "1"},
      {"top_p", 1.5},
      {"top_k", -2},
      {"top_k", 1.5},
      {"min_p", 2},
      {"repetition_penalty", 0},
      {"presence_penalty", 3},
      {"frequency_penalty", -2.5},
      {"seed", 1.5},
      {"seed", "x"},
      {"n", 0},
      {"n", 1000},
      {"n", -1},
      {"stop", ""},
      {"stop", Json::array({1})},
      {"stop", {"a", ""}},
      {"logit_bias", {{"x", 1}}},
      {"logit_bias", {{"-1", 1}}},
      {"logit_bias", {{"1", 101}}},
      {"logit_bias", {{"1", "2"}}},
      {"logit_bias", Json::array({1})},
      {"stream", "yes"},
      {"stream_options", {{"include_usage", true}}},
      {"logprobs", 1},
      {"max_tokens", 0},
      {"max_completion_tokens", -5},
      {"max_tokens", 1.5},
      {"user", 5},
      {"metadata", {{"a", 1}}},
      {"chat_template_kwargs", {{"messages", 1}}},
      {"model", 5},
      {"model", nullptr}};
  for (const auto& [name, value] : bad) {
    EXPECT_EQ(fault(with(name, value)), name) << value;
  }
  EXPECT_EQ(fault(with("bogus", 1)), "bogus");
}

TEST(ChatRequest, WhatIsNotServedIsRefusedByName) {
  const std::vector<std::pair<std::string, Json>> refused = {
      {"functions", Json::array({Json::object({{"name", "f"}})})},
      {"function_call", {{"name", "f"}}},
      {"modalities", Json::array({"text", "audio"})},
      {"audio", {{"voice", "x"}}},
      {"prediction", Json::object()},
      {"web_search_options", Json::object()},
      {"verbosity", "high"},
      {"store", true},
      {"service_tier", "flex"},
      {"prompt_cache_retention", "24h"}};
  for (const auto& [name, value] : refused) {
    const auto request = parse(with(name, value));
    ASSERT_FALSE(request.is_ok()) << name;
    EXPECT_EQ(request.error().param, name);
    EXPECT_EQ(request.error().code, "unsupported_parameter");
  }
}

TEST(ChatRequest, WhatChangesNothingIsTaken) {
  const std::vector<std::pair<std::string, Json>> harmless = {
      {"tools", Json::array()},
      {"tools", nullptr},
      {"tool_choice", "none"},
      {"tool_choice", "auto"},
      {"response_format", {{"type", "text"}}},
      {"grammar", ""},
      {"modalities", Json::array({"text"})},
      {"store", false},
      {"service_tier", "auto"},
      {"parallel_tool_calls", true},
      {"logprobs", false},
      {"stop", nullptr},
      {"metadata", {{"a", "b"}}},
      {"safety_identifier", "s"},
      {"seed", -1},
      {"top_k", -1}};
  for (const auto& [name, value] : harmless) EXPECT_EQ(fault(with(name, value)), "") << name;
}

TEST(ChatRequest, C41TopLogprobsGoWithLogprobsAndUpToTwenty) {
  EXPECT_EQ(fault(with("top_logprobs", 5)), "top_logprobs");
  Json json = with("logprobs", true);
  json["top_logprobs"] = 21;
  EXPECT_EQ(fault(json), "top_logprobs");
  json["top_logprobs"] = 20;
  EXPECT_EQ(fault(json), "");
}

TEST(ChatRequest, C47MessagesThatCannotBeAnsweredAreRefused) {
  EXPECT_EQ(fault(with("messages", Json::array())), "messages");
  EXPECT_EQ(fault(with("messages", nullptr)), "messages");
  EXPECT_EQ(fault(with("messages", "hi")), "messages");
  EXPECT_EQ(fault(with("messages", Json::array({"hi"}))), "messages[0]");
  EXPECT_EQ(message_fault({{"role", "user"}, {"content", nullptr}}), "messages[0].content");
  EXPECT_EQ(message_fault({{"role", "user"}}), "messages[0].content");
  EXPECT_EQ(message_fault({{"role", "user"}, {"content", 5}}), "messages[0].content");
  EXPECT_EQ(message_fault({{"role", "user"}, {"content", Json::array()}}), "messages[0].content");
  EXPECT_EQ(message_fault({{"role", "alien"}, {"content", "hi"}}), "messages[0].role");
  EXPECT_EQ(message_fault({{"content", "hi"}}), "messages[0].role");
  EXPECT_EQ(message_fault({{"role", "user"}, {"content", "hi"}, {"x", 1}}), "messages[0].x");
  EXPECT_EQ(message_fault({{"role", "tool"}, {"content", "hi"}}), "messages[0].tool_call_id");
}

TEST(ChatRequest, C47AnEmptyContentIsTaken) {
  EXPECT_EQ(message_fault({{"role", "user"}, {"content", ""}}), "");
}

TEST(ChatRequest, PartsOfTextAreTakenAndOthersRefusedByTheirType) {
  const Json text = {{"type", "text"}, {"text", "hi"}};
  EXPECT_EQ(message_fault({{"role", "user"}, {"content", Json::array({text, text})}}), "");
  const auto request = parse(with(
      "messages",
      said("user",
           Json::array({Json::object({{"type", "image_url"}, {"image_url", {{"url", "x"}}}})}))));
  ASSERT_FALSE(request.is_ok());
  EXPECT_EQ(request.error().param, "messages[0].content[0].type");
  EXPECT_THAT(request.error().message, HasSubstr("image_url"));
}

TEST(ChatRequest, AnAnswerOfTheOfficialClientCanBeSentBack) {
  EXPECT_EQ(message_fault({{"role", "assistant"},
                           {"content", "hi"},
                           {"refusal", nullptr},
                           {"annotations", Json::array()},
                           {"audio", nullptr},
                           {"function_call", nullptr},
                           {"tool_calls", nullptr}}),
            "");
  const Json call = {
      {"id", "c"}, {"type", "function"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}};
  EXPECT_EQ(message_fault(
                {{"role", "assistant"}, {"content", nullptr}, {"tool_calls", Json::array({call})}}),
            "");
  EXPECT_EQ(message_fault({{"role", "assistant"}, {"content", nullptr}}), "messages[0].content");
}

TEST(ChatRequest, TheDevelopersMessageIsTheSystems) {
  const auto request = parse(with("messages", said("developer", "x")));
  ASSERT_TRUE(request.is_ok());
  EXPECT_EQ((*request).input.template_input["messages"][0]["role"], "system");
}

TEST(ChatRequest, BothNamesOfTheLimitMustAgree) {
  Json json = with("max_tokens", 5);
  json["max_completion_tokens"] = 6;
  EXPECT_EQ(fault(json), "max_tokens");
  json["max_completion_tokens"] = 5;
  EXPECT_EQ(fault(json), "");
}

TEST(ChatRequest, C51EachChoiceHasASeedOfItsOwn) {
  Json json = with("n", 3);
  json["seed"] = 1;
  const auto request = parse(json);
  ASSERT_TRUE(request.is_ok());
  const auto choices = make_choices((*request).options, {1, 2}, {9});
  ASSERT_EQ(choices.size(), 3U);
  EXPECT_EQ(choices[0].request.sampling.seed, 1U);
  EXPECT_EQ(choices[2].request.sampling.seed, 3U);
  EXPECT_THAT(choices[2].request.prompt, ::testing::ElementsAre(1, 2));
  EXPECT_THAT(choices[2].request.end_tokens, ::testing::ElementsAre(9));
}

}  // namespace
}  // namespace shoal::server

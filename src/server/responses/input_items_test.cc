#include "server/responses/input_items.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace shoal::server {
namespace {

using ::testing::HasSubstr;

Json message(std::string_view role, const Json& content) {
  return Json::object({{"role", role}, {"content", content}});
}

Json reasoning(std::string_view text) {
  const Json part = {{"type", "reasoning_text"}, {"text", text}};
  return {{"type", "reasoning"},
          {"id", "rs_1"},
          {"status", "completed"},
          {"summary", Json::array()},
          {"content", Json::array({part})}};
}

Json call(std::string_view id) {
  return {{"type", "function_call"}, {"id", "fc_1"},      {"status", "completed"},
          {"call_id", id},           {"name", "weather"}, {"arguments", R"({"city": "Oslo"})"}};
}

// As a message of a chat has it.
Json tool_call(std::string_view id) {
  return {{"id", id},
          {"type", "function"},
          {"function", {{"name", "weather"}, {"arguments", R"({"city": "Oslo"})"}}}};
}

Json result(std::string_view id, const Json& output) {
  return {{"type", "function_call_output"}, {"call_id", id}, {"output", output}};
}

Json text_part(std::string_view text) { return {{"type", "text"}, {"text", text}}; }

Json messages(const Json& input) {
  const Json request = {{"input", input}};
  Fields fields(request);
  Json messages = Json::array();
  read_input_items(&fields, &messages);
  const auto error = fields.finish();
  EXPECT_FALSE(error.has_value()) << error->message;
  return messages;
}

void refuse(const Json& input, std::string_view param, std::string_view words = "") {
  const Json request = {{"input", input}};
  Fields fields(request);
  Json messages = Json::array();
  read_input_items(&fields, &messages);
  const auto error = fields.finish();
  ASSERT_TRUE(error.has_value()) << input;
  EXPECT_EQ(error->status, 400);
  EXPECT_EQ(error->param, param) << error->message;
  EXPECT_THAT(error->message, HasSubstr(std::string(words)));
}

void refuse_item(const Json& item, std::string_view param, std::string_view words = "") {
  refuse(Json::array({item}), "input[0]" + std::string(param), words);
}

Json with(Json item, std::string_view name, const Json& value) {
  item[std::string(name)] = value;
  return item;
}

TEST(InputItems, ItemsAreMessagesAlsoAsAnAnswerGivesThem) {
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
  EXPECT_EQ(
      messages(Json::array({message("developer", "a"), message("user", Json::array({part})), answer,
                            message("user", "d")})),
      Json::array({message("system", "a"), message("user", Json::array({text_part("b")})),
                   message("assistant", Json::array({text_part("c")})), message("user", "d")}));
}

TEST(InputItems, WhatAnAnswerPutOutIsOneMessageAgain) {
  Json whole = message("assistant", "I look.");
  whole["reasoning_content"] = "Hm.";
  whole["tool_calls"] = {tool_call("c1"), tool_call("c2")};
  Json one = message("tool", "3");
  one["tool_call_id"] = "c1";
  Json two = message("tool", Json::array({text_part("4")}));
  two["tool_call_id"] = "c2";
  two["name"] = "weather";
  const Json parts = Json::array({Json::object({{"type", "input_text"}, {"text", "4"}})});
  EXPECT_EQ(messages({message("user", "hi"), reasoning("Hm."), message("assistant", "I look."),
                      call("c1"), call("c2"), result("c1", "3"),
                      with(result("c2", parts), "name", "weather")}),
            Json::array({message("user", "hi"), whole, one, two}));
}

TEST(InputItems, ACallNeedsNoTextAndAThoughtNoCall) {
  Json first = message("assistant", nullptr);
  first["reasoning_content"] = "Hm.";
  first["tool_calls"] = Json::array({tool_call("c1")});
  Json told = message("tool", "");
  told["tool_call_id"] = "c1";
  Json last = message("assistant", "");
  last["reasoning_content"] = "So.";
  // A client's own dump names fields that are not there.
  Json dumped = call("c1");
  for (const char* name : {"async_", "caller", "namespace"}) dumped[name] = nullptr;
  EXPECT_EQ(messages({reasoning("Hm."), dumped, result("c1", ""), reasoning("So.")}),
            Json::array({first, told, last}));
}

TEST(InputItems, TextBehindACallStaysWithIt) {
  Json whole = message("assistant", Json::array({text_part("a"), text_part("b")}));
  whole["tool_calls"] = Json::array({tool_call("c1")});
  EXPECT_EQ(messages({message("assistant", "a"), call("c1"), message("assistant", "b")}),
            Json::array({whole}));
}

TEST(InputItems, TwoAnswersAreTwoMessagesEachWithItsThought) {
  Json second = message("assistant", "b");
  second["reasoning_content"] = "Hm.";
  EXPECT_EQ(messages({message("assistant", "a"), reasoning("Hm."), message("assistant", "b")}),
            Json::array({message("assistant", "a"), second}));
}

TEST(InputItems, ASummaryStandsForAThoughtThatIsNotThere) {
  Json item = reasoning("");
  item["content"] = nullptr;
  item["summary"] = Json::array({Json::object({{"type", "summary_text"}, {"text", "Hm."}})});
  Json answer = message("assistant", "a");
  answer["reasoning_content"] = "Hm.";
  EXPECT_EQ(messages({item, message("assistant", "a")}), Json::array({answer}));
}

TEST(InputItems, InputsThatCannotBeAnsweredAreRefusedByTheirPlace) {
  refuse(nullptr, "input");
  refuse(Json::array(), "input");
  refuse(7, "input");
  refuse(Json::array({reasoning("")}), "input", "no message");
  refuse_item("text", "");
  refuse_item(message("alien", "hi"), ".role");
  refuse_item(message("user", nullptr), ".content");
  refuse_item(message("user", Json::array()), ".content");
  refuse_item(message("user", Json::array({1})), ".content");
  refuse_item(message("user", Json::array({Json::object({{"type", "input_image"}})})),
              ".content[0].type", "input_image");
  refuse_item(message("user", Json::array({Json::object({{"type", "input_text"}})})),
              ".content[0].text");
  refuse_item(with(message("user", "hi"), "bogus", 1), ".bogus");
  refuse_item({{"type", "item_reference"}, {"id", "x"}}, ".type", "send the item itself");
  refuse_item({{"type", "web_search_call"}, {"id", "x"}}, ".type", "web_search_call");
}

TEST(InputItems, CallsAndThoughtsThatAreWrongAreRefusedByTheirPlace) {
  for (const char* name : {"call_id", "name", "arguments"}) {
    refuse_item(with(call("c1"), name, nullptr), "." + std::string(name), "must be a string");
  }
  refuse_item(with(call("c1"), "status", "done"), ".status");
  refuse_item(with(call("c1"), "namespace", "n"), ".namespace");
  refuse_item(with(call("c1"), "async", true), ".async");
  refuse_item(with(call("c1"), "caller", {{"type", "program"}}), ".caller");
  refuse_item(with(result("c1", "3"), "call_id", nullptr), ".call_id");
  refuse_item(result("c1", nullptr), ".output");
  refuse_item(result("c1", Json::array({Json::object({{"type", "input_image"}})})),
              ".output[0].type", "input_image");
  refuse_item(with(reasoning("a"), "encrypted_content", "x"), ".encrypted_content", "content");
  refuse_item(with(reasoning("a"), "content", "a"), ".content");
  refuse_item(with(reasoning("a"), "content", Json::array({text_part("a")})), ".content[0].type",
              "reasoning_text");
}

}  // namespace
}  // namespace shoal::server

#include "server/openai/completion_request.h"

#include <gmock/gmock.h>

namespace shoal::server {
namespace {

using Ids = std::vector<runtime::TokenId>;

ApiResult<CompletionRequest> parse(const Json& extra) {
  Json json = {{"model", "m"}, {"prompt", "hi"}};
  json.update(extra);
  return parse_completion_request(json.dump());
}

std::string fault(const Json& extra) {
  const auto request = parse(extra);
  return request.is_ok() ? "" : request.error().param.value_or("?");
}

TEST(CompletionRequest, HasTheDocumentedDefaults) {
  const auto request = parse(Json::object());
  ASSERT_TRUE(request.is_ok());
  EXPECT_EQ((*request).options.tokens_max, 16U);
  EXPECT_FALSE((*request).options.wants_logprobs);
  EXPECT_FALSE((*request).echoes);
}

TEST(CompletionRequest, C47PromptsInAllTheirForms) {
  EXPECT_EQ(std::get<std::string>((*parse({{"prompt", ""}})).prompts.at(0)), "");
  EXPECT_EQ((*parse({{"prompt", {"a", "b"}}})).prompts.size(), 2U);
  EXPECT_EQ(std::get<Ids>((*parse({{"prompt", {1, 2, 3}}})).prompts.at(0)), (Ids{1, 2, 3}));
  EXPECT_EQ((*parse({{"prompt", {{1, 2}, {3}}}})).prompts.size(), 2U);
  for (const char* bad : {"null", "[]", "5", "{}", "[1, \"a\"]", "[\"a\", 1]", "[1, -1]", "[1.5]",
                          "[1, 3000000000]", "[[]]", "[null]"}) {
    EXPECT_EQ(fault({{"prompt", Json::parse(bad)}}), "prompt") << bad;
  }
}

TEST(CompletionRequest, LimitsAndTheirNames) {
  EXPECT_EQ(fault({{"logprobs", 21}}), "logprobs");
  EXPECT_EQ(fault({{"logprobs", 20}}), "");
  EXPECT_EQ(fault({{"logprobs", true}}), "logprobs");
  EXPECT_EQ(fault({{"logprobs", 0}}), "");
  EXPECT_EQ(fault({{"max_tokens", 0}}), "max_tokens");
  EXPECT_EQ(fault({{"best_of", 2}}), "best_of");
  EXPECT_EQ(fault({{"best_of", 2}, {"n", 2}}), "");
  EXPECT_EQ(fault({{"suffix", "x"}}), "suffix");
  EXPECT_EQ(fault({{"echo", true}, {"logprobs", 1}}), "echo");
  EXPECT_EQ(fault({{"n", 40}, {"prompt", {"a", "b"}}}), "n");
  EXPECT_EQ(fault({{"messages", Json::array()}}), "messages");
}

}  // namespace
}  // namespace shoal::server

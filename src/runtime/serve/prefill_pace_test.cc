#include "runtime/serve/prefill_pace.h"

#include <gtest/gtest.h>

namespace shoal::runtime {
namespace {

TEST(PrefillPace, FollowsWhatStepsTook) {
  PrefillPace pace;
  EXPECT_EQ(pace.tokens_alone(1), PrefillPace::kFirst);
  pace.note({.answers = 0, .prefill_tokens = 100, .seconds = 0.5});  // 5 ms a token
  EXPECT_EQ(pace.tokens_alone(0.5), 96U) << "in whole grains";
  EXPECT_EQ(pace.tokens_beside_answers(0.5), 96U);
  for (int i = 0; i < 40; ++i) pace.note({.answers = 8, .prefill_tokens = 0, .seconds = 0.1});
  EXPECT_EQ(pace.tokens_beside_answers(0.5), 80U) << "the answers take 100 ms of it";
  EXPECT_EQ(pace.tokens_alone(0.5), 96U);
  // With answers, only what the prompts add counts: now 10 ms a token.
  for (int i = 0; i < 40; ++i) pace.note({.answers = 8, .prefill_tokens = 50, .seconds = 0.6});
  EXPECT_EQ(pace.tokens_beside_answers(0.5), 32U);
}

TEST(PrefillPace, PromptsAlwaysGetOn) {
  PrefillPace pace;
  pace.note({.answers = 8, .prefill_tokens = 0, .seconds = 3});
  pace.note({.answers = 8, .prefill_tokens = 16, .seconds = 4});
  EXPECT_EQ(pace.tokens_beside_answers(0.25), PrefillPace::kTokensMin);
  pace.note({.answers = 8, .prefill_tokens = 16, .seconds = 1});
  EXPECT_GE(pace.tokens_beside_answers(0.25), PrefillPace::kTokensMin);
}

}  // namespace
}  // namespace shoal::runtime

#include "tensor/ops/logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace shoal::tensor {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(size_t count) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal(0.0F, 5.0F);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

TEST(Logits, LogSumExpAgreesWithFloat64) {
  for (const size_t count : {1U, 15U, 16U, 17U, 1025U, 49152U}) {
    std::vector<float> logits = random_logits(count);
    logits.push_back(-kInfinity);  // a masked token adds nothing
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    const LogitSummary summary = summarize_logits(logits);
    EXPECT_TRUE(summary.is_finite);
    // Every exponential is good to 2^-22, and so is their sum; then one rounding of the result.
    EXPECT_NEAR(summary.log_sum_exp, std::log(sum), 3e-7 + std::fabs(std::log(sum)) * 6e-8);
  }
}

TEST(Logits, LargeLogitsDoNotOverflow) {
  EXPECT_NEAR(summarize_logits(std::vector<float>{3e38F, 3e38F}).log_sum_exp, 3e38F, 1e32F);
  EXPECT_EQ(summarize_logits({}).log_sum_exp, -kInfinity);
  EXPECT_EQ(summarize_logits(std::vector<float>{-kInfinity}).log_sum_exp, -kInfinity);
}

TEST(Logits, NanAndInfinityAreSeen) {
  for (const float bad : {kInfinity, std::nanf("")}) {
    std::vector<float> logits = random_logits(100);
    logits[63] = bad;
    EXPECT_FALSE(summarize_logits(logits).is_finite);
  }
}

TEST(Logits, CandidatesAreTheBestInOrder) {
  const std::vector<float> logits = random_logits(5000);
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const float first = logits[static_cast<size_t>(a)];
    const float second = logits[static_cast<size_t>(b)];
    return first != second ? first > second : a < b;
  });
  std::vector<Candidate> best(40);
  ASSERT_EQ(top_candidates(logits, 1000, best), 40);
  for (size_t i = 0; i < best.size(); ++i) {
    EXPECT_EQ(best[i].token, 1000 + order[i]);
    EXPECT_EQ(best[i].logit, logits[static_cast<size_t>(order[i])]);
  }
}

TEST(Logits, TiesGoToTheLowestToken) {
  const std::vector<float> logits = {1, 3, 3, 2, 3, 2};
  std::vector<Candidate> best(4);
  ASSERT_EQ(top_candidates(logits, 0, best), 4);
  EXPECT_EQ(best[0].token, 1);
  EXPECT_EQ(best[1].token, 2);
  EXPECT_EQ(best[2].token, 4);
  EXPECT_EQ(best[3].token, 3);
}

TEST(Logits, FewerLogitsThanPlacesAreAllReturnedAndNanIsLast) {
  std::vector<Candidate> best(10);
  ASSERT_EQ(top_candidates(std::vector<float>{std::nanf(""), 1.0F}, 5, best), 2);
  EXPECT_EQ(best[0].token, 6);
  EXPECT_EQ(best[1].token, 5);
  EXPECT_EQ(top_candidates(std::vector<float>{1.0F}, 0, {}), 0);
}

TEST(Logits, PartsAddUpToTheWhole) {
  const std::vector<float> logits = random_logits(1000);
  const std::span all(logits);
  const float parts = log_add_exp(summarize_logits(all.subspan(0, 300)).log_sum_exp,
                                  summarize_logits(all.subspan(300)).log_sum_exp);
  EXPECT_NEAR(parts, summarize_logits(all).log_sum_exp, 2e-6F);
  EXPECT_EQ(log_add_exp(-kInfinity, 2.0F), 2.0F);
  EXPECT_EQ(log_add_exp(-kInfinity, -kInfinity), -kInfinity);
  EXPECT_TRUE(std::isnan(log_add_exp(std::nanf(""), 2.0F)));
  EXPECT_TRUE(std::isnan(log_add_exp(2.0F, std::nanf(""))));
}

}  // namespace
}  // namespace shoal::tensor

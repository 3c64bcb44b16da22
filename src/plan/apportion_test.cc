#include "plan/apportion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

namespace shoal::plan {
namespace {

using Counts = std::vector<uint64_t>;

TEST(Apportion, GivesTheLargestRemaindersTheRest) {
  EXPECT_EQ(apportion(3, std::vector<double>{1, 1}), (Counts{2, 1}));
  EXPECT_EQ(apportion(9, std::vector<double>{1, 1, 1, 1}), (Counts{3, 2, 2, 2}));
  EXPECT_EQ(apportion(48, std::vector<double>{3, 1}), (Counts{36, 12}));
  EXPECT_EQ(apportion(3, std::vector<double>{3, 1}), (Counts{2, 1}));
  EXPECT_EQ(apportion(10, std::vector<double>{1, 2.4, 2.6}), (Counts{2, 4, 4}));
}

TEST(Apportion, LeavesNoRankWithoutAGrain) {
  EXPECT_EQ(apportion(3, std::vector<double>{100, 1, 1}), (Counts{1, 1, 1}));
  EXPECT_EQ(apportion(5, std::vector<double>{1e6, 1, 1}), (Counts{3, 1, 1}));
}

TEST(Apportion, SumsUpAndFollowsTheOrderOfTheWeights) {
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    const size_t ranks = 1 + random() % 12;
    const uint64_t grains = ranks + random() % 200;
    std::vector<double> weights(ranks);
    for (double& weight : weights) weight = 1 + random() % 50;
    const Counts counts = apportion(grains, weights);
    ASSERT_EQ(std::accumulate(counts.begin(), counts.end(), uint64_t{0}), grains);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    const bool floored =
        *std::min_element(weights.begin(), weights.end()) / sum * static_cast<double>(grains) < 1;
    for (size_t a = 0; a < ranks; ++a) {
      ASSERT_GE(counts[a], 1U);
      const double share = weights[a] / sum * static_cast<double>(grains);
      if (!floored) {
        ASSERT_LT(std::abs(static_cast<double>(counts[a]) - share), 1.0);
      }
      for (size_t b = 0; b < ranks; ++b) {
        if (weights[a] > weights[b]) {
          ASSERT_GE(counts[a], counts[b]);
        }
      }
    }
  }
}

}  // namespace
}  // namespace shoal::plan

#include "cli/eval/scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <limits>
#include <numeric>

namespace shoal::cli {
namespace {

// 64 tokens and some more, with falling probabilities that are known exactly.
class Distribution {
 public:
  explicit Distribution(size_t vocabulary) : logits_(vocabulary) {
    for (size_t i = 0; i < vocabulary; ++i) logits_[i] = -0.1F * static_cast<float>(i);
    double sum = 0;
    for (const float logit : logits_) sum += std::exp(static_cast<double>(logit));
    for (size_t i = 0; i < Reference::kTop; ++i) {
      ids_[i] = static_cast<uint16_t>(i);
      log_probabilities_[i] = static_cast<float>(logits_[i] - std::log(sum));
    }
  }
  std::vector<float>& logits() { return logits_; }
  Reference::Position reference() const { return {ids_, log_probabilities_}; }

 private:
  std::vector<float> logits_;
  std::array<uint16_t, Reference::kTop> ids_{};
  std::array<float, Reference::kTop> log_probabilities_{};
};

TEST(Scores, PerplexityOfAUniformDistributionIsItsSize) {
  Scores scores;
  const std::vector<float> logits(50, 3.0F);
  for (int32_t next = 0; next < 5; ++next) ASSERT_TRUE(scores.add(logits, next).is_ok());
  EXPECT_NEAR(scores.perplexity(), 50, 1e-9);
  EXPECT_EQ(scores.positions(), 5U);
  EXPECT_FALSE(scores.divergence().has_value());
}

TEST(Scores, ADistributionDoesNotDivergeFromItself) {
  Distribution distribution(100);
  Scores scores;
  ASSERT_TRUE(scores.add(distribution.logits(), 0).is_ok());
  ASSERT_TRUE(scores.compare(distribution.logits(), distribution.reference()).is_ok());
  EXPECT_NEAR(scores.divergence()->mean, 0, 1e-7);
  EXPECT_EQ(scores.divergence()->same_best, 1);
}

TEST(Scores, DivergenceIsThatOfTheFormula) {
  Distribution distribution(100);
  const Reference::Position reference = distribution.reference();
  std::vector<float> other = distribution.logits();
  std::swap(other[0], other[5]);
  Scores scores;
  ASSERT_TRUE(scores.add(other, 0).is_ok());
  ASSERT_TRUE(scores.compare(other, reference).is_ok());
  // Only the two swapped tokens differ: (p0 - p5) * (ln p0 - ln p5).
  const double log_p0 = reference.log_probabilities[0];
  const double log_p5 = reference.log_probabilities[5];
  const double expected = (std::exp(log_p0) - std::exp(log_p5)) * (log_p0 - log_p5);
  EXPECT_NEAR(scores.divergence()->mean, expected, 1e-6);
  EXPECT_EQ(scores.divergence()->same_best, 0);
}

TEST(Scores, LogitsThatAreNotFiniteAreAnError) {
  Scores scores;
  std::vector<float> logits(10, 0.0F);
  logits[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(scores.add(logits, 0).is_ok());
  logits[3] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(scores.add(logits, 0).is_ok());
}

TEST(Scores, AReferenceOfAnotherVocabularyIsAnError) {
  Distribution distribution(100);
  const std::vector<float> small(32, 0.0F);
  Scores scores;
  ASSERT_TRUE(scores.add(small, 0).is_ok());
  EXPECT_FALSE(scores.compare(small, distribution.reference()).is_ok());
}

std::string written(const std::string& name, size_t bytes, char fill) {
  const std::string path = testing::TempDir() + name;
  std::ofstream(path, std::ios::binary) << std::string(bytes, fill);
  return path;
}

TEST(Reference, AFileOfAnotherFormIsRefused) {
  EXPECT_FALSE(Reference::read(testing::TempDir() + "none.top64").is_ok());
  EXPECT_FALSE(Reference::read(written("empty.top64", 0, 'x')).is_ok());
  EXPECT_FALSE(Reference::read(written("odd.top64", 385, 'x')).is_ok());
  // Letters as floats are far above 0, which no log probability is.
  EXPECT_FALSE(Reference::read(written("letters.top64", 384, 'x')).is_ok());
}

TEST(Reference, PositionsComeBackInOrder) {
  const std::string path = testing::TempDir() + "two.top64";
  std::ofstream file(path, std::ios::binary);
  std::vector<uint16_t> ids(2 * Reference::kTop);
  std::iota(ids.begin(), ids.end(), uint16_t{7});
  std::vector<float> log_probabilities(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) log_probabilities[i] = -static_cast<float>(i);
  file.write(reinterpret_cast<const char*>(ids.data()),
             static_cast<std::streamsize>(ids.size() * 2));
  file.write(reinterpret_cast<const char*>(log_probabilities.data()),
             static_cast<std::streamsize>(ids.size() * 4));
  file.close();
  const auto reference = Reference::read(path);
  ASSERT_TRUE(reference.is_ok()) << reference.status().message();
  ASSERT_EQ(reference->size(), 2U);
  EXPECT_EQ(reference->position(1).ids[0], 7 + 64);
  EXPECT_EQ(reference->position(1).log_probabilities[63], -127);
}

}  // namespace
}  // namespace shoal::cli

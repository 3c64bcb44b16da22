#include "runtime/draft/draft_pace.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace shoal::runtime {
namespace {

constexpr size_t kMost = 16;

// Of an answer that has copied so many tokens of its prompt, or has said so often something else
// than was drafted.
NgramDrafter drafter_of(bool copies, size_t times) {
  std::vector<TokenId> tokens(200);
  std::iota(tokens.begin(), tokens.end(), 0);
  tokens.push_back(0);
  tokens.push_back(1);
  NgramDrafter drafter(tokens, 2000);
  for (size_t i = 0; i < times; ++i) {
    tokens.push_back(copies ? static_cast<TokenId>(2 + i) : static_cast<TokenId>(1000 + i));
    drafter.append(tokens);
    for (TokenId id = 0; id < 2 && !copies; ++id) {
      tokens.push_back(id);
      drafter.append(tokens);
    }
  }
  return drafter;
}

// Steps of `answers` rows and of some more, each row for `row` seconds beside a fixed one.
DraftPace pace_of(size_t answers, double row) {
  DraftPace pace;
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const size_t rows = answers + (i % 3 == 0 ? random() % 8 : 0);
    const double noise = 1 + 0.1 * (static_cast<double>(random() % 100) / 100 - 0.5);
    pace.note(rows, (1 + row * static_cast<double>(rows)) * noise);
  }
  return pace;
}

size_t chosen(DraftPace pace, size_t answers, const NgramDrafter& drafter) {
  pace.begin_step(answers);
  return pace.choose(drafter, kMost);
}

TEST(DraftPace, DraftsNothingBeforeAStepWasMeasured) {
  EXPECT_EQ(chosen(DraftPace(), 1, drafter_of(true, 100)), 0U);
}

TEST(DraftPace, DraftsALotWhereTextIsCopiedAndRowsAreCheap) {
  EXPECT_EQ(chosen(pace_of(1, 0.05), 1, drafter_of(true, 100)), kMost);
  EXPECT_GE(chosen(pace_of(1, 0.5), 1, drafter_of(true, 100)), 4U);
}

TEST(DraftPace, DraftsNothingWhereItWasWrong) {
  for (const double row : {0.05, 0.5}) {
    EXPECT_EQ(chosen(pace_of(1, row), 1, drafter_of(false, 60)), 0U) << row;
  }
}

TEST(DraftPace, DraftsNothingWhereRowsCostAllOfAStep) {
  EXPECT_EQ(chosen(pace_of(1, 1000), 1, drafter_of(true, 100)), 0U);
}

TEST(DraftPace, ManyAnswersLeaveLittleRoom) {
  const NgramDrafter sure = drafter_of(true, 100);
  const NgramDrafter likely = drafter_of(true, 4);
  const DraftPace alone = pace_of(1, 0.2);
  const DraftPace crowded = pace_of(32, 0.2);
  EXPECT_GT(chosen(alone, 1, likely), 0U);
  EXPECT_EQ(chosen(crowded, 32, likely), 0U);
  EXPECT_GE(chosen(alone, 1, sure), chosen(crowded, 32, sure));
}

// A guess before it has tried; then what it has seen, though the context grows meanwhile, and one
// step that something held up changes little.
TEST(StepCost, LearnsWhatARowAdds) {
  StepCost cost;
  cost.note(1, 1.0);
  EXPECT_DOUBLE_EQ(cost.seconds(1), 1.0);
  EXPECT_DOUBLE_EQ(cost.row_seconds(), StepCost::kRowShare);
  double base = 1;
  for (int i = 0; i < 300; ++i, base *= 1.002) {
    const size_t rows = i % 4 == 0 ? 5 : 1;
    cost.note(rows, base + 0.1 * static_cast<double>(rows - 1));
  }
  EXPECT_NEAR(cost.row_seconds(), 0.1, 0.01);
  EXPECT_NEAR(cost.seconds(1), base, 0.1 * base);
  cost.note(1, 100 * base);
  EXPECT_NEAR(cost.row_seconds(), 0.1, 0.05);
  EXPECT_NEAR(cost.seconds(1), base, 0.2 * base);
}

TEST(StepCost, GoesBackToTheGuessWhenNothingIsTried) {
  StepCost cost;
  for (int i = 0; i < 50; ++i) {
    cost.note(1, 1.0);
    cost.note(3, 2.9);
  }
  EXPECT_GT(cost.row_seconds(), 0.8);
  for (int i = 0; i < 1000; ++i) cost.note(1, 1.0);
  EXPECT_NEAR(cost.row_seconds(), StepCost::kRowShare, 0.01);
}

}  // namespace
}  // namespace shoal::runtime

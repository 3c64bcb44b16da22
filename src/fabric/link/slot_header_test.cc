#include "fabric/link/slot_header.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>

namespace shoal::fabric {
namespace {

SlotHeader make_header(uint64_t sequence, uint64_t released, const SlotNote& note) {
  return slot_header({.epoch = 5, .sequence = sequence, .released = released}, note);
}

TEST(ShortHeader, SaysWhatTheWholeHeaderSaysWhereverItIsMade) {
  std::mt19937_64 random(1);
  int made = 0;
  for (int i = 0; i < 100'000; ++i) {
    const uint64_t sequence = random() >> (random() % 60);
    const uint64_t released = random() >> (random() % 60);
    const SlotTrail before{.message_left = random() % 3 == 0 ? random() % 1000 : 0,
                           .tag = static_cast<uint32_t>(random())};
    SlotNote note{.bytes = static_cast<uint32_t>(random() % 300),
                  .is_first = random() % 2 == 0,
                  .message_left = random() % 1000,
                  .tag = before.tag + static_cast<uint32_t>(random() % 140) - 70};
    if (random() % 2 == 0) note.message_left = note.is_first ? note.bytes : before.message_left;
    const auto header = ShortHeader::of_slot(make_header(sequence, released, note), before);
    if (!header.has_value()) continue;
    ++made;
    const ShortHeader read = ShortHeader::from_word(header->word());
    EXPECT_FALSE(read.is_credit());
    EXPECT_TRUE(read.fits(note.bytes));
    const uint64_t step = random() % (ShortHeader::kStepMax + 1);
    EXPECT_EQ(read.sequence_from(sequence - step), sequence);
    EXPECT_EQ(read.released_from(released - step), released);
    const SlotNote back = read.note(note.bytes, before);
    EXPECT_EQ(back.bytes, note.bytes);
    EXPECT_EQ(back.is_first, note.is_first);
    EXPECT_EQ(back.message_left, note.message_left);
    EXPECT_EQ(back.tag, note.tag);
  }
  EXPECT_GT(made, 20'000);
}

TEST(ShortHeader, IsNotMadeOfWhatTheSlotBeforeDoesNotExplain) {
  const SlotTrail ended{.message_left = 0, .tag = 100};
  const SlotTrail open{.message_left = 50, .tag = 100};
  const auto is_made = [](const SlotNote& note, const SlotTrail& before) {
    return ShortHeader::of_slot(make_header(1, 0, note), before).has_value();
  };
  EXPECT_TRUE(is_made({.bytes = 8, .message_left = 8, .tag = 100}, ended));
  EXPECT_TRUE(is_made({.bytes = 8, .message_left = 8, .tag = 36}, ended));
  EXPECT_TRUE(is_made({.bytes = 8, .message_left = 8, .tag = 163}, ended));
  EXPECT_TRUE(is_made({.bytes = 8, .is_first = false, .message_left = 50, .tag = 100}, open));
  // A tag too far away.
  EXPECT_FALSE(is_made({.bytes = 8, .message_left = 8, .tag = 35}, ended));
  EXPECT_FALSE(is_made({.bytes = 8, .message_left = 8, .tag = 164}, ended));
  // The first slot of a longer message, and what goes on where nothing does.
  EXPECT_FALSE(is_made({.bytes = 8, .message_left = 9, .tag = 100}, ended));
  EXPECT_FALSE(is_made({.bytes = 8, .is_first = false, .message_left = 8, .tag = 100}, ended));
  // A message in the middle of another one, and a rest that is another.
  EXPECT_FALSE(is_made({.bytes = 8, .message_left = 8, .tag = 100}, open));
  EXPECT_FALSE(is_made({.bytes = 8, .is_first = false, .message_left = 49, .tag = 100}, open));
}

TEST(ShortHeader, AWrongLengthIsSeen) {
  const auto header =
      ShortHeader::of_slot(make_header(1, 0, {.bytes = 4096, .message_left = 4096}), {});
  ASSERT_TRUE(header.has_value());
  for (uint32_t bytes = 0; bytes <= 65536; ++bytes) {
    EXPECT_EQ(header->fits(bytes), bytes % 251 == 4096 % 251) << bytes;
  }
}

TEST(ShortHeader, CreditsSayNothingElse) {
  const ShortHeader header = ShortHeader::of_credits(998);
  EXPECT_TRUE(header.is_credit());
  EXPECT_EQ(header.released_from(990), 998U);
  EXPECT_TRUE(header.fits(0));
  EXPECT_FALSE(header.fits(1));
  for (const int bit : {0, 7, 16, 23, 24, 30}) {
    EXPECT_FALSE(ShortHeader::from_word(header.word() | 1U << bit).fits(0)) << bit;
  }
}

}  // namespace
}  // namespace shoal::fabric

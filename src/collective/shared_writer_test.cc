#include "collective/shared_writer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

namespace shoal::collective {
namespace {

// Every pair of looks at it is one copy that takes the next of the given times; then the last.
class CopyClock final : public Clock {
 public:
  void set_times(std::vector<int> nanoseconds) {
    times_ = std::move(nanoseconds);
    next_ = 0;
  }
  size_t copies_timed() const { return looks_ / 2; }

  Nanoseconds now() const override {
    if (looks_++ % 2 == 1) {
      now_ += Nanoseconds(times_[next_]);
      next_ = std::min(next_ + 1, times_.size() - 1);
    }
    return now_;
  }

 private:
  std::vector<int> times_ = {0};
  mutable size_t next_ = 0;
  mutable size_t looks_ = 0;
  mutable Nanoseconds now_{0};
};

constexpr size_t kFloats = 1024;
constexpr int kFast = 4096 / 20;  // nanoseconds of a copy of so many
constexpr int kSlow = 4096 / 2;
constexpr int kInterrupted = 1'000'000;

struct Copies {
  CopyClock clock;
  SharedWriter writer{clock};
  std::vector<float> from = std::vector<float>(kFloats);
  std::vector<float> to = std::vector<float>(kFloats);

  // Copies until so many more have been timed.
  void time(size_t count, const std::vector<int>& times) {
    clock.set_times(times);
    const size_t end = clock.copies_timed() + count;
    for (int copies = 0; clock.copies_timed() < end; ++copies) {
      ASSERT_LT(copies, 10'000);
      writer.copy(to, from);
    }
  }
};

TEST(SharedWriter, SlowPlainStoresLeadToStreamingAndFastOnesBack) {
  Copies copies;
  EXPECT_FALSE(copies.writer.is_streaming());
  copies.time(3, {kSlow});
  EXPECT_TRUE(copies.writer.is_streaming());
  copies.time(3, {kFast});
  EXPECT_FALSE(copies.writer.is_streaming());
}

TEST(SharedWriter, InterruptedCopiesDoNotDecide) {
  Copies copies;
  copies.time(3, {kInterrupted, kInterrupted, kFast});
  EXPECT_FALSE(copies.writer.is_streaming());
  copies.time(3, {kFast, kInterrupted, kInterrupted});
  EXPECT_FALSE(copies.writer.is_streaming());
  copies.time(3, {kInterrupted, kSlow, kSlow});
  EXPECT_TRUE(copies.writer.is_streaming());
}

TEST(SharedWriter, MostCopiesAreNotTimed) {
  Copies copies;
  for (int i = 0; i < 1000; ++i) copies.writer.copy(copies.to, copies.from);
  EXPECT_LT(copies.clock.copies_timed(), 100);
  EXPECT_GT(copies.clock.copies_timed(), 0);
}

// Copies of every size between addresses of any alignment, in one of the two ways.
void check_copies(bool is_streaming, size_t from_offset, size_t to_offset) {
  CopyClock clock;
  SharedWriter writer(clock);
  alignas(64) std::array<float, 4096> to;
  std::vector<float> from(4096);
  std::iota(from.begin(), from.end(), 1.0F);
  for (const size_t count : {0, 1, 15, 16, 17, 255, 256, 1000, 4000}) {
    to.fill(-1.0F);
    const auto source = std::span(from).subspan(from_offset, count);
    const auto target = std::span(to).subspan(to_offset);
    writer.set_streaming(is_streaming);
    writer.copy(target, source);
    writer.flush();
    ASSERT_TRUE(std::equal(source.begin(), source.end(), target.begin())) << count;
    for (size_t i = 0; i < to.size(); ++i) {
      const bool is_inside = i >= to_offset && i < to_offset + count;
      ASSERT_EQ(to[i] == -1.0F, !is_inside) << count << " at " << i;
    }
  }
}

TEST(SharedWriter, BothWaysCopyEveryElementAndNoMoreAtAnyAlignment) {
  for (const bool is_streaming : {false, true}) {
    for (const size_t from_offset : {0, 1, 3}) {
      for (const size_t to_offset : {0, 1, 4, 15}) {
        check_copies(is_streaming, from_offset, to_offset);
      }
    }
  }
}

}  // namespace
}  // namespace shoal::collective

#include "base/clock.h"

#include <gtest/gtest.h>

namespace shoal {
namespace {

using std::chrono::seconds;

TEST(Deadline, ExpiresWhenItsClockReachesIt) {
  ManualClock clock;
  const Deadline deadline = Deadline::after(clock, seconds(2));
  EXPECT_FALSE(deadline.expired());
  EXPECT_EQ(deadline.left(), seconds(2));
  clock.advance(seconds(2));
  EXPECT_TRUE(deadline.expired());
  clock.advance(seconds(1));
  EXPECT_EQ(deadline.left(), seconds(0));
}

TEST(SteadyClock, NeverGoesBack) {
  const SteadyClock& clock = SteadyClock::instance();
  Nanoseconds before = clock.now();
  for (int i = 0; i < 1000; ++i) {
    const Nanoseconds now = clock.now();
    ASSERT_GE(now, before);
    before = now;
  }
}

}  // namespace
}  // namespace shoal

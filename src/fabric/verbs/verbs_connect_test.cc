// What keeps queue pairs from coming up, and drivers that do not answer: each is an error that says
// what it is, at the deadline at the latest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <array>
#include <chrono>
#include <cstring>
#include <thread>

#include "fabric/in_process.h"
#include "fabric/testing/fake_verbs.h"

namespace shoal::fabric {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

InProcessOptions over(const FakeVerbs& verbs) {
  InProcessOptions options;
  options.link = LinkKind::kVerbs;
  options.verbs = verbs.provider();
  return options;
}

// What was left to itself ends once the driver goes on.
void expect_all_gone(FakeVerbs& verbs) {
  verbs.set_hanging(false);
  const Deadline deadline = Deadline::after(seconds(20));
  while (!verbs.counts().is_all_gone() && !deadline.expired()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  EXPECT_TRUE(verbs.counts().is_all_gone());
  EXPECT_THAT(verbs.counts().violations, testing::IsEmpty());
}

// C70: all is set up well, and nothing comes through.
TEST(VerbsConnect, C70_APathOnWhichNothingComesThroughIsNamedInTime) {
  using Mode = FakeVerbsOptions::Mode;
  for (const Mode mode : {Mode::kLinuxRc, Mode::kLinuxUc, Mode::kThunderbolt}) {
    FakeVerbs verbs{FakeVerbsOptions{.mode = mode}};
    verbs.set_link(false);
    const auto group =
        make_in_process_group(over(verbs), Deadline::after(std::chrono::milliseconds(500)));
    ASSERT_FALSE(group.is_ok());
    EXPECT_THAT(group.status().message(), HasSubstr("over verbs: fake0 port 1, GID 3"));
    EXPECT_THAT(group.status().message(), HasSubstr("does not come through"));
    expect_all_gone(verbs);
  }
}

// C71: both ends take the smaller of the two MTUs; the fake delivers nothing between different
// ones.
TEST(VerbsConnect, C71_PortsWithDifferentMtusUseTheSmallerOne) {
  FakeVerbs verbs{FakeVerbsOptions()};
  constexpr SlotClass kSlots{.payload_bytes = 16384, .count = 4};
  const auto large =
      VerbsRail::open(verbs.provider(), {.device = "fake0", .mtu = IBV_MTU_4096}, kSlots);
  const auto small =
      VerbsRail::open(verbs.provider(), {.device = "fake0", .mtu = IBV_MTU_1024}, kSlots);
  ASSERT_TRUE(large.is_ok() && small.is_ok());
  ASSERT_TRUE((*large)->connect((*small)->offer()).is_ok());
  ASSERT_TRUE((*small)->connect((*large)->offer()).is_ok());
  std::memset((*large)->send_slot(0), 7, 5000);
  ASSERT_TRUE((*large)->post_send(1, {.from = (*large)->send_slot(0), .bytes = 5000}).is_ok());
  std::array<ibv_wc, 1> completion{};
  const Deadline deadline = Deadline::after(seconds(10));
  while (*(*small)->poll_receives(completion) == 0 && !deadline.expired()) {
  }
  EXPECT_EQ(completion[0].byte_len, 5000U);
  EXPECT_EQ(*(*small)->receive(1, 0), std::byte{7});
}

// C73: a group says at its start what the limit is, what it needs and what to do.
TEST(VerbsConnect, C73_ALowLimitOnLockedMemoryIsNamedWithTheRemedy) {
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &before), 0);
  const rlimit low{.rlim_cur = 65536, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &low), 0);
  FakeVerbs verbs{FakeVerbsOptions{.limits_locked_memory = true}};
  const auto group = make_in_process_group(over(verbs), Deadline::after(seconds(2)));
  setrlimit(RLIMIT_MEMLOCK, &before);
  ASSERT_FALSE(group.is_ok());
  EXPECT_THAT(group.status().message(), HasSubstr("the limit on locked memory is 65536 for all"));
  EXPECT_THAT(group.status().message(), HasSubstr("cannot register "));
  EXPECT_THAT(group.status().message(), HasSubstr("ulimit -l"));
  expect_all_gone(verbs);
}

TEST(VerbsConnect, ADriverThatHangsMakingQueuePairsIsAnErrorAtTheDeadline) {
  FakeVerbs verbs{FakeVerbsOptions()};
  verbs.set_hanging(true);
  const auto group =
      make_in_process_group(over(verbs), Deadline::after(std::chrono::milliseconds(300)));
  ASSERT_FALSE(group.is_ok());
  EXPECT_THAT(group.status().message(), HasSubstr("its driver hangs"));
  expect_all_gone(verbs);
}

// Its peer cannot: what was made must be destroyed again, and that hangs.
TEST(VerbsConnect, ADriverThatHangsAfterAFailureDoesNotHoldTheCaller) {
  FakeVerbs verbs{FakeVerbsOptions()};
  verbs.set_link(false);
  verbs.hang_when_destroying();
  const Nanoseconds begin = SteadyClock::instance().now();
  const auto group =
      make_in_process_group(over(verbs), Deadline::after(std::chrono::milliseconds(300)));
  EXPECT_FALSE(group.is_ok());
  EXPECT_LT(SteadyClock::instance().now() - begin, seconds(20));
  expect_all_gone(verbs);
}

TEST(VerbsConnect, ADriverThatHangsDestroyingQueuePairsDoesNotKeepAGroupFromEnding) {
  FakeVerbs verbs{FakeVerbsOptions()};
  auto group = make_in_process_group(over(verbs), Deadline::after(seconds(60)));
  ASSERT_TRUE(group.is_ok()) << group.status().to_string();
  verbs.set_hanging(true);
  group->clear();
  EXPECT_FALSE(verbs.counts().is_all_gone());
  expect_all_gone(verbs);
}

}  // namespace
}  // namespace shoal::fabric

#include "base/os/descriptor_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <string>

namespace shoal {
namespace {

rlimit descriptor_limit() {
  rlimit limit{};
  EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  return limit;
}

TEST(ReserveDescriptors, RaisesTheSoftLimitOnlyWhenItHasTo) {
  const rlimit before = descriptor_limit();
  rlimit small = before;
  small.rlim_cur = 200;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &small), 0);
  EXPECT_TRUE(reserve_descriptors(1).is_ok());
  EXPECT_EQ(descriptor_limit().rlim_cur, 200);
  EXPECT_TRUE(reserve_descriptors(200).is_ok());
  EXPECT_EQ(descriptor_limit().rlim_cur, before.rlim_max);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(ReserveDescriptors, MoreThanTheHardLimitIsAnErrorWithBothNumbers) {
  const rlimit limit = descriptor_limit();
  const Status status = reserve_descriptors(limit.rlim_max);
  EXPECT_EQ(status.code(), StatusCode::kNode);
  EXPECT_THAT(status.message(),
              testing::HasSubstr("and " + std::to_string(limit.rlim_max) + " are allowed"));
  EXPECT_EQ(descriptor_limit().rlim_cur, limit.rlim_cur);
}

}  // namespace
}  // namespace shoal

#include "base/os/thread.h"

#include <gtest/gtest.h>
#include <pthread.h>

namespace shoal {
namespace {

TEST(StartThread, RunsTheFunction) {
  bool has_run = false;
  Result<std::thread> thread = start_thread([&] { has_run = true; });
  ASSERT_TRUE(thread.is_ok());
  thread->join();
  EXPECT_TRUE(has_run);
}

TEST(StartThread, AMachineWithoutRoomForAThreadIsAnError) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_getattr_default_np(&attributes), 0);
  size_t usual = 0;
  ASSERT_EQ(pthread_attr_getstacksize(&attributes, &usual), 0);
  // No address space holds a stack of this size.
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, size_t{1} << 50), 0);
  ASSERT_EQ(pthread_setattr_default_np(&attributes), 0);
  const Result<std::thread> thread = start_thread([] { FAIL(); });
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, usual), 0);
  ASSERT_EQ(pthread_setattr_default_np(&attributes), 0);
  pthread_attr_destroy(&attributes);
  EXPECT_EQ(thread.status().code(), StatusCode::kNode);
}

}  // namespace
}  // namespace shoal

#include "base/os/cpus.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <string>

#include "base/os/control_groups.h"
#include "base/testing/planted_root.h"

namespace shoal {
namespace {

using testing::PlantedRoot;

TEST(UsableCpus, AreTheLesserOfMaskAndQuotaAndAtLeastOne) {
  EXPECT_EQ(usable_cpus_of(96, 7.65), 7U);
  EXPECT_EQ(usable_cpus_of(2, 7.65), 2U);
  EXPECT_EQ(usable_cpus_of(4, 0), 4U);
  EXPECT_EQ(usable_cpus_of(4, 0.5), 1U);
  EXPECT_EQ(usable_cpus_of(0, 0), 1U);
  EXPECT_GE(usable_cpus(), 1U);
}

TEST(UsableCpus, FollowTheAffinityMask) {
  const std::vector<int> before = affinity_cpus();
  ASSERT_FALSE(before.empty());
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(before.back(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(affinity_cpus(), std::vector<int>{before.back()});
  EXPECT_EQ(usable_cpus(), 1U);
  cpu_set_t all;
  CPU_ZERO(&all);
  for (const int cpu : before) CPU_SET(cpu, &all);
  ASSERT_EQ(sched_setaffinity(0, sizeof(all), &all), 0);
}

TEST(CpuQuota, IsTheLeastOfTheGroupAndThoseAroundIt) {
  const PlantedRoot root;
  root.write("proc/self/cgroup", "0::/a/b\n");
  root.write("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(root.path()), 0);
  root.write("sys/fs/cgroup/a/b/cpu.max", "300000 100000\n");
  EXPECT_EQ(cpu_quota(root.path()), 3);
  root.write("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(root.path()), 1.5);
}

TEST(CpuQuota, OfVersion1AndItsUnlimitedValue) {
  const PlantedRoot root;
  root.write("proc/self/cgroup", "5:memory:/m\n3:cpu,cpuacct:/docker/x\n1:cpuset:/s\n");
  root.write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "-1\n");
  root.write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root.path()), 0);
  root.write("sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us", "250000\n");
  EXPECT_EQ(cpu_quota(root.path()), 2.5);
}

TEST(CpuQuota, OfAContainerWhoseOwnPathIsNotVisible) {
  const PlantedRoot root;
  root.write("proc/self/cgroup", "3:cpu,cpuacct:/kubepods/pod\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "400000\n");
  root.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(root.path()), 4);
}

TEST(CpuQuota, OddFilesAreNoLimit) {
  const PlantedRoot root;
  EXPECT_EQ(cpu_quota(root.path()), 0);
  root.write("proc/self/cgroup", "0::\nnonsense\n:\n0::relative\n");
  for (const char* text : {"", "100000", "100000 0", "-5 100000", "x y"}) {
    root.write("sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(cpu_quota(root.path()), 0) << text;
  }
}

TEST(ControlGroups, AreListedFromTheInnermostOut) {
  const PlantedRoot root;
  root.write("proc/self/cgroup", "0::/a/b\n4:memory:/m\n");
  const ControlGroups groups = find_control_groups("memory", root.path());
  const std::string mount = root.path() + "/sys/fs/cgroup";
  EXPECT_EQ(groups.unified, (std::vector<std::string>{mount + "/a/b", mount + "/a", mount}));
  EXPECT_EQ(groups.controller, (std::vector<std::string>{mount + "/memory/m", mount + "/memory"}));
}

}  // namespace
}  // namespace shoal

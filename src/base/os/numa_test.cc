#include "base/os/numa.h"

#include <gtest/gtest.h>
#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

#include "base/os/cpus.h"
#include "base/testing/planted_root.h"

namespace shoal {
namespace {

using Numbers = std::vector<int>;

// A file of the kernel's about domains.
std::string file(const std::string& name) { return "sys/devices/system/node/" + name; }

TEST(NumberList, IsReadAsTheKernelWritesIt) {
  EXPECT_EQ(parse_number_list(""), Numbers());
  EXPECT_EQ(parse_number_list("0"), Numbers({0}));
  EXPECT_EQ(parse_number_list("0-3,8,10-11"), Numbers({0, 1, 2, 3, 8, 10, 11}));
  EXPECT_EQ(parse_number_list("4,0-1,1"), Numbers({0, 1, 4}));
  EXPECT_EQ(parse_number_list("65535"), Numbers({65535}));
}

TEST(NumberList, AnythingElseIsNone) {
  for (const char* text : {"x", "1-", "-1", "3-1", "1,", ",1", "1,,2", "1 2", "0-65536", "1-2-3",
                           "99999999999", "0x1", "0-1:1/2"}) {
    EXPECT_EQ(parse_number_list(text), std::nullopt) << text;
  }
}

TEST(NumaDomains, HaveTheirProcessorsThatMayBeUsed) {
  const testing::PlantedRoot root;
  root.write(file("online"), "0-1,4\n");
  root.write(file("has_memory"), "0,4\n");
  root.write(file("node0/cpulist"), "0-3,8-11\n");
  root.write(file("node1/cpulist"), "4-7\n");
  root.write(file("node4/cpulist"), "12-15\n");
  const auto all =
      numa_domains_of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, root.path());
  ASSERT_EQ(all.size(), 3U);
  EXPECT_EQ(all[0].number, 0);
  EXPECT_EQ(all[0].cpus, Numbers({0, 1, 2, 3, 8, 9, 10, 11}));
  EXPECT_TRUE(all[0].has_memory);
  EXPECT_EQ(all[1].cpus, Numbers({4, 5, 6, 7}));
  EXPECT_FALSE(all[1].has_memory);
  EXPECT_EQ(all[2].number, 4);
  EXPECT_TRUE(all[2].has_memory);

  const auto some = numa_domains_of({2, 9, 13}, root.path());
  ASSERT_EQ(some.size(), 2U);
  EXPECT_EQ(some[0].cpus, Numbers({2, 9}));
  EXPECT_EQ(some[1].number, 4);
  EXPECT_EQ(some[1].cpus, Numbers({13}));
}

TEST(NumaDomains, MemoryWithoutProcessorsIsNone) {
  const testing::PlantedRoot root;
  root.write(file("online"), "0-1\n");
  root.write(file("has_memory"), "0-1\n");
  root.write(file("node0/cpulist"), "0-1\n");
  root.write(file("node1/cpulist"), "\n");
  const auto domains = numa_domains_of({0, 1}, root.path());
  ASSERT_EQ(domains.size(), 1U);
  EXPECT_EQ(domains[0].number, 0);
}

TEST(NumaDomains, OddFilesAreNoDomains) {
  const testing::PlantedRoot root;
  EXPECT_TRUE(numa_domains_of({0, 1}, root.path()).empty());
  root.write(file("online"), "all\n");
  root.write(file("node0/cpulist"), "0-1\n");
  EXPECT_TRUE(numa_domains_of({0, 1}, root.path()).empty());
  root.write(file("online"), "0-1\n");
  root.write(file("node0/cpulist"), "many\n");
  EXPECT_TRUE(numa_domains_of({0, 1}, root.path()).empty());
}

TEST(NumaDomains, OfThisMachineCoverItsProcessors) {
  const auto domains = numa_domains();
  if (domains.empty()) GTEST_SKIP() << "this system tells no NUMA domains";
  size_t cpus = 0;
  for (const NumaDomain& domain : domains) cpus += domain.cpus.size();
  EXPECT_EQ(cpus, affinity_cpus().size());
}

// On a thread of its own, which takes the binding with it.
TEST(NumaBinding, KeepsAThreadAndItsMemoryInADomain) {
  const auto domains = numa_domains();
  if (domains.empty()) GTEST_SKIP() << "this system tells no NUMA domains";
  NumaDomain domain = domains.back();
  domain.cpus = {domain.cpus.back()};
  Result<NumaBinding> binding = Status::node("not run");
  std::vector<int> cpus;
  int policy = -1;
  unsigned long mask[64] = {};
  const std::vector<int> before = affinity_cpus();
  std::thread([&] {
    binding = bind_to_domain(domain);
    cpus = affinity_cpus();
    (void)::syscall(SYS_get_mempolicy, &policy, mask, sizeof(mask) * 8, nullptr, 0);
  }).join();
  ASSERT_TRUE(binding.is_ok()) << binding.status().message();
  EXPECT_EQ(cpus, domain.cpus);
  EXPECT_EQ(affinity_cpus(), before);
  if (!binding->holds_memory) GTEST_SKIP() << "this system does not let memory be bound";
  EXPECT_EQ(policy, MPOL_BIND);
  const auto number = static_cast<size_t>(domain.number);
  EXPECT_NE(mask[number / 64] & (1UL << (number % 64)), 0U);
}

TEST(NumaBinding, ADomainThatIsNotThereIsAnError) {
  NumaDomain domain{.number = 1000, .cpus = {affinity_cpus().front()}, .has_memory = true};
  NumaDomain without_processors{.number = 0, .cpus = {kListNumberMax}, .has_memory = false};
  std::thread([&] {
    const auto binding = bind_to_domain(domain);
    if (binding.is_ok()) {
      EXPECT_FALSE(binding->holds_memory) << "only where the system forbids to ask";
    } else {
      EXPECT_NE(binding.status().message().find("1000"), std::string::npos);
    }
    EXPECT_FALSE(bind_to_domain(without_processors).is_ok());
  }).join();
}

}  // namespace
}  // namespace shoal

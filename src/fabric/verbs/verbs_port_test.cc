#include "fabric/verbs/verbs_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/testing/fake_verbs.h"

namespace shoal::fabric {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SocketAddress address_of(const std::string& host) {
  const auto all = resolve({.host = host, .port = 7000}, Deadline::after(std::chrono::seconds(5)));
  CHECK(all.is_ok() && !all->empty());
  return all->front();
}

class VerbsPortTest : public testing::Test {
 protected:
  FakeVerbs verbs_{{.addresses = {"192.0.2.1", "198.51.100.7"}, .has_engine_thread = false}};
};

// C70: by the address from which the peer is reached, RoCE v2, whatever the index.
TEST_F(VerbsPortTest, C70_TheGidIsFoundByAddress) {
  const auto first = find_port(verbs_.table(), address_of("192.0.2.1"));
  ASSERT_TRUE(first.is_ok()) << first.status().message();
  EXPECT_EQ(first->device, "fake0");
  EXPECT_EQ(first->gid_index, 3) << "index 2 is the same address for RoCE v1";
  EXPECT_EQ(first->gid.raw[15], 1);
  EXPECT_EQ(first->text(), "fake0 port 1");
  const auto second = find_port(verbs_.table(), address_of("198.51.100.7"));
  ASSERT_TRUE(second.is_ok());
  EXPECT_EQ(second->device, "fake1");
  EXPECT_TRUE(verbs_.counts().is_all_gone()) << "devices are closed again";
}

TEST_F(VerbsPortTest, C70_WhyThereIsNoneIsSaidForEachDevice) {
  const auto port = find_port(verbs_.table(), address_of("203.0.113.5"));
  ASSERT_FALSE(port.is_ok());
  EXPECT_EQ(port.status().code(), StatusCode::kNode);
  EXPECT_THAT(port.status().message(), HasSubstr("203.0.113.5"));
  EXPECT_THAT(port.status().message(), HasSubstr("fake0 port 1 has fe80::1, 192.0.2.1"));
  EXPECT_THAT(port.status().message(), HasSubstr("fake1 port 1 has fe80::1, 198.51.100.7"));
}

TEST_F(VerbsPortTest, APortThatIsDownIsNotTaken) {
  verbs_.set_port_active(false);
  const auto port = find_port(verbs_.table(), address_of("192.0.2.1"));
  ASSERT_FALSE(port.is_ok());
  EXPECT_THAT(port.status().message(), HasSubstr("has that address but is down"));
}

TEST_F(VerbsPortTest, PortsAreListedWithWhatPeopleLookFor) {
  const auto ports = list_ports(verbs_.table());
  ASSERT_TRUE(ports.is_ok());
  ASSERT_EQ(ports->size(), 2U);
  const PortFacts& first = ports->front();
  EXPECT_EQ(first.device, "fake0");
  EXPECT_EQ(first.state, "active");
  EXPECT_EQ(first.link, "Ethernet");
  EXPECT_EQ(first.mtu, 4096U);
  EXPECT_EQ(first.gbit_per_second, 100);
  EXPECT_EQ(first.firmware, "fake-1");
  EXPECT_THAT(first.addresses, ElementsAre("fe80::1", "192.0.2.1"));
}

TEST(VerbsTable, ALibraryThatIsMissingIsSaidWithItsRemedy) {
  const auto table = load_verbs();
  if (table.is_ok()) GTEST_SKIP() << "this machine has libibverbs";
  EXPECT_EQ(table.status().code(), StatusCode::kNode);
  EXPECT_THAT(table.status().message(), HasSubstr("libibverbs1"));
}

}  // namespace
}  // namespace shoal::fabric

#include "cli/doctor/rdma_view.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fabric/testing/fake_verbs.h"

namespace shoal::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RdmaView, ShowsPortsWithTheGidsThatPeersAreReachedBy) {
  fabric::FakeVerbs verbs({.addresses = {"192.0.2.1", "198.51.100.7"}, .has_engine_thread = false});
  EXPECT_EQ(rdma_text(fabric::list_ports(verbs.table())),
            "fake0 port 1: active (link up), Ethernet, 100 Gbit/s, MTU 4096 of 4096, firmware "
            "fake-1\n"
            "    GID 1: fe80::1 (RoCE v2)\n"
            "    GID 3: 192.0.2.1 (RoCE v2)\n"
            "  fake1 port 1: active (link up), Ethernet, 100 Gbit/s, MTU 4096 of 4096, firmware "
            "fake-1\n"
            "    GID 1: fe80::1 (RoCE v2)\n"
            "    GID 3: 198.51.100.7 (RoCE v2)");
  verbs.set_port_active(false);
  EXPECT_THAT(rdma_text(fabric::list_ports(verbs.table())),
              HasSubstr("fake0 port 1: down (disabled)"));
}

TEST(RdmaView, TheJsonHasTheWholeGidTable) {
  const fabric::FakeVerbs verbs({.addresses = {"192.0.2.1"}, .has_engine_thread = false});
  const Json json = rdma_json(fabric::list_ports(verbs.table()));
  EXPECT_TRUE(json["unavailable"].is_null());
  ASSERT_EQ(json["ports"].size(), 1U);
  const Json& port = json["ports"][0];
  EXPECT_EQ(port["device"], "fake0");
  EXPECT_EQ(port["state"], "active");
  EXPECT_EQ(port["mtu"], 4096);
  EXPECT_EQ(port["gbit_per_second"], 100);
  EXPECT_EQ(port["firmware"], "fake-1");
  ASSERT_EQ(port["gids"].size(), 4U);
  EXPECT_EQ(port["gids"][2].dump(), R"({"index":2,"type":"RoCE v1","address":"192.0.2.1"})");
}

TEST(RdmaView, ShowsAnInfiniBandPortWithItsLidAndADeviceThatStaysClosed) {
  const std::vector<fabric::PortFacts> ports = {
      {.device = "mlx5_0", .state = "active", .link = "InfiniBand", .lid = 7},
      {.device = "mlx5_2", .state = "active", .link = "InfiniBand", .addresses = {"10.0.0.5"}},
      {.device = "mlx5_1", .state = "cannot be opened"}};
  EXPECT_THAT(rdma_text(ports),
              AllOf(HasSubstr("InfiniBand, rate unknown, MTU"), HasSubstr("LID 7, no address"),
                    HasSubstr("mlx5_2 port 1: active"), HasSubstr(", address 10.0.0.5\n"),
                    HasSubstr("\n  mlx5_1: cannot be opened"), Not(HasSubstr("mlx5_1 port"))));
}

TEST(RdmaView, ARateThatIsNotKnownIsNullInJson) {
  const std::vector<fabric::PortFacts> ports = {{.device = "mlx5_0", .state = "active"}};
  EXPECT_TRUE(rdma_json(ports)["ports"][0]["gbit_per_second"].is_null());
}

TEST(RdmaView, SaysWhyThereIsNone) {
  const RdmaPorts none = Status::node("no RDMA library; install it");
  EXPECT_EQ(rdma_text(none), "no RDMA library; install it");
  EXPECT_EQ(rdma_json(none)["unavailable"], "no RDMA library; install it");
  EXPECT_TRUE(rdma_json(none)["ports"].empty());
}

}  // namespace
}  // namespace shoal::cli

#include "fabric/verbs/verbs_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>

#include "base/testing/planted_root.h"
#include "fabric/testing/fake_verbs.h"

namespace shoal::fabric {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

SocketAddress address_of(const std::string& host) {
  const auto all = resolve({.host = host, .port = 7000}, Deadline::after(std::chrono::seconds(5)));
  CHECK(all.is_ok() && !all->empty());
  return all->front();
}

class VerbsPortTest : public ::testing::Test {
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
  EXPECT_EQ(first.physical_state, "link up");
  EXPECT_EQ(first.mtu_max, 4096U);
  ASSERT_EQ(first.gids.size(), 4U);
  EXPECT_EQ(first.gids[2].type, "RoCE v1");
  EXPECT_EQ(first.gids[2].address, "192.0.2.1");
  EXPECT_EQ(first.gids[3].index, 3);
  EXPECT_EQ(first.gids[3].type, "RoCE v2");
  verbs_.set_port_active(false);
  const auto down = list_ports(verbs_.table());
  ASSERT_TRUE(down.is_ok());
  EXPECT_EQ(down->front().state, "down");
  EXPECT_EQ(down->front().physical_state, "disabled");
}

// The GIDs of InfiniBand are no IP addresses: those of IP over InfiniBand lead to the port.
class InfinibandPortTest : public VerbsPortTest {
 protected:
  InfinibandPortTest() : table_(verbs_.table()) {
    table_.query_port = [](ibv_context* /*context*/, uint8_t /*port*/, ibv_port_attr* attributes) {
      *attributes = {};
      attributes->state = IBV_PORT_ACTIVE;
      attributes->active_mtu = IBV_MTU_4096;
      attributes->max_mtu = IBV_MTU_4096;
      attributes->gid_tbl_len = 4;
      attributes->link_layer = IBV_LINK_LAYER_INFINIBAND;
      attributes->lid = 7;
      return 0;
    };
    table_.query_gid_type = [](ibv_context* /*context*/, uint8_t /*port*/, int index,
                               ibv_gid_type* type) {
      *type = IBV_GID_TYPE_IB;
      return index == 2 ? 0 : ENODATA;
    };
    // The GID of fake0, whose subnet prefix a subnet manager has chosen.
    gid_ = *gid_of_link_address("80:00:00:48:00:00:00:00:00:00:00:00:00:00:ff:ff:c0:00:02:01");
  }
  VerbsTable table_;
  std::array<uint8_t, 16> gid_{};
};

TEST_F(InfinibandPortTest, IsFoundByTheAddressOfIpOverInfiniband) {
  const std::vector<InfinibandAddress> addresses = {{"10.0.0.5", gid_}};
  const auto port = find_port(table_, address_of("10.0.0.5"), addresses);
  ASSERT_TRUE(port.is_ok()) << port.status().message();
  EXPECT_EQ(port->device, "fake0");
  EXPECT_EQ(port->gid_index, 2);
  EXPECT_EQ(port->lid, 7);
  EXPECT_FALSE(port->has_gid_routing);
  const auto ports = list_ports(table_, addresses);
  ASSERT_TRUE(ports.is_ok());
  EXPECT_THAT(ports->at(0).addresses, ElementsAre("10.0.0.5")) << "a GID is no address";
  EXPECT_THAT(ports->at(1).addresses, IsEmpty()) << "another port's GID";
  EXPECT_EQ(ports->at(0).link, "InfiniBand");
  EXPECT_EQ(ports->at(0).lid, 7U);
}

// A subnet prefix that looks like an address which an interface has is still none.
TEST_F(InfinibandPortTest, RanksMeetAtTheAddressOfIpOverInfiniband) {
  const auto ports = list_ports(table_, {{"10.0.0.5", gid_}});
  ASSERT_TRUE(ports.is_ok());
  const auto address = choose_meeting_address(*ports, {"192.0.2.1", "10.0.0.5"});
  ASSERT_TRUE(address.is_ok()) << address.status().message();
  EXPECT_EQ(*address, "10.0.0.5");
  EXPECT_FALSE(find_port(table_, address_of("192.0.2.1"), {}).is_ok());
}

TEST_F(InfinibandPortTest, IsNotFoundByAnAddressOfAnotherNetwork) {
  EXPECT_FALSE(find_port(table_, address_of("10.0.0.5"), {}).is_ok());
  EXPECT_FALSE(find_port(verbs_.table(), address_of("10.0.0.5"), {{"10.0.0.5", gid_}}).is_ok())
      << "a port of Ethernet has no IP over InfiniBand";
}

TEST(MeetingAddress, IsOneThatCanBeListenedOn) {
  const PortFacts port{.device = "mlx5_0",
                       .state = "active",
                       .link = "Ethernet",
                       .addresses = {"fe80::1", "203.0.113.9", "192.0.2.1", "192.0.2.2"}};
  const std::string* address = meeting_address(port, {"fe80::1", "192.0.2.1", "192.0.2.2"});
  ASSERT_NE(address, nullptr);
  EXPECT_EQ(*address, "192.0.2.1") << "no scope is known, and no interface here has 203.0.113.9";
  EXPECT_EQ(meeting_address(port, {"fe80::1"}), nullptr);
}

TEST(MeetingAddress, IsThatOfTheFirstActivePortOrTheReasonsWhyThereIsNone) {
  std::vector<PortFacts> ports = {
      {.device = "mlx5_0", .state = "cannot be opened"},
      {.device = "mlx5_1", .state = "down", .link = "Ethernet", .addresses = {"192.0.2.1"}},
      {.device = "mlx5_2", .state = "active", .link = "Ethernet", .addresses = {"203.0.113.9"}}};
  const std::set<std::string> here = {"192.0.2.1", "192.0.2.2"};
  const auto none = choose_meeting_address(ports, here);
  EXPECT_EQ(none.status().code(), StatusCode::kNode);
  EXPECT_EQ(none.status().message(),
            "no RDMA port can be used: mlx5_0 cannot be opened; mlx5_1 port 1 is down; mlx5_2 port "
            "1 is active and has no IP address of this machine");
  ports.push_back(
      {.device = "mlx5_3", .state = "active", .link = "Ethernet", .addresses = {"192.0.2.2"}});
  EXPECT_EQ(*choose_meeting_address(ports, here), "192.0.2.2");
}

bool comes_true(const std::function<bool()>& what) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (!what() && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return what();
}

TEST(VerbsPorts, AreGivenUpWhereADriverHangs) {
  FakeVerbs verbs({.addresses = {"192.0.2.1"}, .has_engine_thread = false});
  EXPECT_EQ(list_ports_bounded(verbs.table(), std::chrono::seconds(20))->size(), 1U);
  verbs.set_open_hanging(true);
  const auto ports = list_ports_bounded(verbs.table(), std::chrono::milliseconds(50));
  EXPECT_EQ(ports.status().code(), StatusCode::kNode);
  EXPECT_EQ(ports.status().message(), kSilentDriver);
  // What was left to itself ends once the driver goes on.
  ASSERT_TRUE(comes_true([&] { return verbs.counts().contexts == 1; }));
  verbs.set_open_hanging(false);
  EXPECT_TRUE(comes_true([&] { return verbs.counts().is_all_gone(); }));
}

TEST(VerbsPorts, ARateThatHasNoCodeIsUnknown) {
  const FakeVerbs verbs({.addresses = {"192.0.2.1"}, .has_engine_thread = false});
  VerbsTable table = verbs.table();
  table.query_port = [](ibv_context* /*context*/, uint8_t /*port*/, ibv_port_attr* attributes) {
    *attributes = {};
    attributes->active_width = 2;
    attributes->active_speed = 0;  // what is left in 8 bits of XDR's 256
    return 0;
  };
  EXPECT_EQ(list_ports(table)->front().gbit_per_second, 0);
}

TEST(InfinibandAddresses, AreReadFromTheInterfacesLinkAddresses) {
  const shoal::testing::PlantedRoot root;
  EXPECT_TRUE(infiniband_addresses(root.path()).empty());
  root.write("sys/class/net/lo/type", "32\n");
  root.write("sys/class/net/lo/address",
             "80:00:00:48:fe:80:00:00:00:00:00:00:e4:1d:2d:03:00:00:00:a1\n");
  const auto addresses = infiniband_addresses(root.path());
  const auto found = std::ranges::find(addresses, "127.0.0.1", &InfinibandAddress::address);
  ASSERT_NE(found, addresses.end());
  EXPECT_EQ(found->gid, (std::array<uint8_t, 16>{0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0xe4, 0x1d, 0x2d, 3,
                                                 0, 0, 0, 0xa1}));
}

TEST(InfinibandAddresses, OtherLinkAddressesHaveNoGid) {
  EXPECT_FALSE(gid_of_link_address("02:fc:00:ff:00:01"));
  EXPECT_FALSE(gid_of_link_address(""));
  EXPECT_FALSE(gid_of_link_address("80:00:00:48:fe:80:00:00:00:00:00:00:e4:1d:2d:03:00:00:00:ag"));
  EXPECT_FALSE(gid_of_link_address("80:00:00:48:fe:80:00:00-00:00:00:00:e4:1d:2d:03:00:00:00:a1"));
}

TEST_F(VerbsPortTest, AKernelWithoutRdmaHasNoDevices) {
  VerbsTable table = verbs_.table();
  table.get_device_list = [](int* /*count*/) -> ibv_device** {
    errno = ENOSYS;
    return nullptr;
  };
  const auto ports = list_ports(table);
  ASSERT_TRUE(ports.is_ok()) << ports.status().message();
  EXPECT_TRUE(ports->empty());
  EXPECT_THAT(local_rdma_address(table).status().message(), HasSubstr("has no RDMA device"));
  table.get_device_list = [](int* /*count*/) -> ibv_device** {
    errno = EACCES;
    return nullptr;
  };
  EXPECT_THAT(list_ports(table).status().message(), HasSubstr("cannot be listed: Permission"));
}

TEST(VerbsTable, WithoutTheLibraryOrWithAnotherOneTheErrorSaysWhatToInstall) {
  const auto missing = load_verbs_from("libibverbs.so.of-nowhere");
  EXPECT_EQ(missing.status().code(), StatusCode::kNode);
  EXPECT_THAT(missing.status().message(), HasSubstr("libibverbs.so.of-nowhere"));
  EXPECT_THAT(missing.status().message(), HasSubstr("install libibverbs1"));
  const auto other = load_verbs_from("libm.so.6");
  EXPECT_THAT(other.status().message(), HasSubstr("libm.so.6 has no ibv_get_device_list"));
}

}  // namespace
}  // namespace shoal::fabric

#include "cli/doctor/facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <chrono>
#include <functional>
#include <thread>

#include "base/testing/planted_root.h"
#include "fabric/testing/fake_verbs.h"

namespace shoal::cli {
namespace {

using shoal::testing::PlantedRoot;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = NetworkInterface::Kind;

void plant_network(const PlantedRoot& root, const std::string& name, const std::string& type) {
  const std::string folder = "sys/class/net/" + name;
  root.write(folder + "/type", type + "\n");
  root.write(folder + "/flags", "0x1003\n");
  root.write(folder + "/operstate", "up\n");
  root.write(folder + "/mtu", "1500\n");
}

// fake0 with a uverbs device, a node, and eth1 behind the second entry of its GID table.
void plant_device(const PlantedRoot& root) {
  root.write("sys/class/infiniband/fake0/ports/1/state", "4: ACTIVE\n");
  root.write("sys/class/infiniband/fake0/ports/1/gid_attrs/ndevs/1", "eth1\n");
  root.write("sys/class/infiniband_verbs/abi_version", "6\n");
  root.write("sys/class/infiniband_verbs/uverbs3/ibdev", "fake0\n");
  root.write("dev/infiniband/uverbs3", "");
}

TEST(ReadNetworks, TellsWhatEachInterfaceIs) {
  const PlantedRoot root;
  for (const auto* name : {"eth0", "wlan0", "thunderbolt0", "veth1", "docker0"}) {
    plant_network(root, name, "1");
  }
  plant_network(root, "lo", "772");
  plant_network(root, "ib0", "32");
  plant_network(root, "wg0", "65534");
  root.write("sys/class/net/eth0/device/vendor", "0x15b3\n");
  root.write("sys/class/net/wlan0/wireless/status", "");
  root.write("sys/class/net/docker0/bridge/ageing_time", "");
  root.write("drivers/thunderbolt-net/x", "");
  root.write("sys/class/net/thunderbolt0/device/x", "");
  std::filesystem::create_directory_symlink(
      root.path() + "/drivers/thunderbolt-net",
      root.path() + "/sys/class/net/thunderbolt0/device/driver");
  root.write("sys/class/net/bonding_masters", "");
  std::map<std::string, Kind> kinds;
  for (const NetworkInterface& network : read_networks(root.path(), {})) {
    kinds[network.name] = network.kind;
  }
  EXPECT_EQ(kinds, (std::map<std::string, Kind>{{"docker0", Kind::kBridge},
                                                {"eth0", Kind::kEthernet},
                                                {"ib0", Kind::kInfiniBand},
                                                {"lo", Kind::kLoopback},
                                                {"thunderbolt0", Kind::kThunderbolt},
                                                {"veth1", Kind::kVirtual},
                                                {"wg0", Kind::kTunnel},
                                                {"wlan0", Kind::kWireless}}));
}

// A bridge's ports, a bond's members and a VLAN's interface are what it stands on.
TEST(ReadNetworks, TellsWhichBridgesHaveHardware) {
  const PlantedRoot root;
  for (const auto* name : {"docker0", "vmbr0", "vmbr1", "veth1", "bond0", "eth0.100", "eth0"}) {
    plant_network(root, name, "1");
  }
  for (const auto* bridge : {"docker0", "vmbr0", "vmbr1"}) {
    root.write(std::string("sys/class/net/") + bridge + "/bridge/ageing_time", "");
    root.write(std::string("sys/class/net/") + bridge + "/brif/veth1/state", "");
  }
  root.write("sys/class/net/eth0/device/vendor", "0x15b3\n");
  root.write("sys/class/net/eth0.100/lower_eth0/x", "");
  root.write("sys/class/net/bond0/lower_eth0/x", "");
  root.write("sys/class/net/vmbr0/brif/eth0/state", "");
  root.write("sys/class/net/vmbr1/brif/bond0/state", "");
  std::map<std::string, bool> has_hardware;
  for (const NetworkInterface& network : read_networks(root.path(), {})) {
    has_hardware[network.name] = network.has_hardware;
  }
  EXPECT_EQ(has_hardware, (std::map<std::string, bool>{{"bond0", true},
                                                       {"docker0", false},
                                                       {"eth0", true},
                                                       {"eth0.100", true},
                                                       {"veth1", false},
                                                       {"vmbr0", true},
                                                       {"vmbr1", true}}));
}

TEST(ReadNetworks, TellsStateMtuAndAddresses) {
  const PlantedRoot root;
  plant_network(root, "eth0", "1");
  plant_network(root, "eth1", "1");
  root.write("sys/class/net/eth0/mtu", "9000\n");
  root.write("sys/class/net/eth1/flags", "0x1002\n");
  root.write("sys/class/net/eth1/operstate", "down\n");
  const auto networks = read_networks(
      root.path(), {{"eth0", "192.0.2.1"}, {"eth0", "fe80::1"}, {"eth9", "192.0.2.9"}});
  ASSERT_EQ(networks.size(), 2U);
  EXPECT_TRUE(networks[0].is_up && networks[0].has_carrier);
  EXPECT_EQ(networks[0].mtu, 9000U);
  EXPECT_THAT(networks[0].ipv4, ElementsAre("192.0.2.1"));
  EXPECT_THAT(networks[0].ipv6, ElementsAre("fe80::1"));
  EXPECT_FALSE(networks[1].is_up || networks[1].has_carrier);
  EXPECT_THAT(networks[1].ipv4, IsEmpty());
}

TEST(ReadRdma, JoinsWhatTheKernelAndTheLibraryTell) {
  const PlantedRoot root;
  plant_device(root);
  root.write("sys/module/rdma_rxe/refcnt", "1\n");
  const fabric::FakeVerbs verbs({.addresses = {"192.0.2.1"}, .has_engine_thread = false});
  const RdmaFacts facts = read_rdma(root.path(), &verbs.table());
  EXPECT_TRUE(facts.library.is_ok());
  EXPECT_TRUE(facts.has_soft_roce);
  ASSERT_EQ(facts.devices.size(), 1U);
  const RdmaDevice& device = facts.devices.front();
  EXPECT_EQ(device.name, "fake0");
  EXPECT_EQ(device.uverbs, "uverbs3");
  EXPECT_TRUE(device.has_node);
  EXPECT_EQ(device.open_error, 0);
  EXPECT_FALSE(facts.is_silent);
  EXPECT_EQ(device.networks, (std::map<int, std::string>{{1, "eth1"}}));
  ASSERT_EQ(facts.ports.size(), 1U);
  EXPECT_EQ(facts.ports.front().device, "fake0");
}

TEST(ReadRdma, TellsWhatIsMissing) {
  const PlantedRoot root;
  plant_device(root);
  std::filesystem::remove(root.path() + "/dev/infiniband/uverbs3");
  const RdmaFacts without_node =
      read_rdma(root.path(), Status::node("no RDMA library; install it"));
  EXPECT_THAT(without_node.library.message(), HasSubstr("install"));
  EXPECT_FALSE(without_node.has_soft_roce);
  EXPECT_FALSE(without_node.devices.front().has_node);
  EXPECT_EQ(without_node.devices.front().open_error, 0);
  EXPECT_THAT(without_node.ports, IsEmpty());
  std::filesystem::remove_all(root.path() + "/sys/class/infiniband_verbs/uverbs3");
  EXPECT_EQ(read_rdma(root.path(), Status::node("none")).devices.front().uverbs, "");
  std::filesystem::remove_all(root.path() + "/sys/class/infiniband");
  EXPECT_THAT(read_rdma(root.path(), Status::node("none")).devices, IsEmpty());
}

// A folder cannot be opened to write, by root neither.
TEST(ReadRdma, KeepsWhyADeviceCannotBeOpened) {
  const PlantedRoot root;
  plant_device(root);
  std::filesystem::remove(root.path() + "/dev/infiniband/uverbs3");
  std::filesystem::create_directory(root.path() + "/dev/infiniband/uverbs3");
  const RdmaDevice device = read_rdma(root.path(), Status::node("none")).devices.front();
  EXPECT_TRUE(device.has_node);
  EXPECT_EQ(device.open_error, EISDIR);
}

bool comes_true(const std::function<bool()>& what) {
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (!what() && !deadline.expired()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  return what();
}

TEST(ReadRdma, GivesUpADriverThatDoesNotAnswer) {
  const PlantedRoot root;
  plant_device(root);
  fabric::FakeVerbs verbs({.addresses = {"192.0.2.1"}, .has_engine_thread = false});
  verbs.set_open_hanging(true);
  const Nanoseconds start = SteadyClock::instance().now();
  const RdmaFacts facts = read_rdma(root.path(), &verbs.table());
  EXPECT_LT(SteadyClock::instance().now() - start, std::chrono::seconds(10));
  EXPECT_TRUE(facts.is_silent);
  EXPECT_EQ(facts.devices.size(), 1U);
  EXPECT_THAT(facts.ports, IsEmpty());
  // What was left to itself ends once the driver goes on.
  ASSERT_TRUE(comes_true([&] { return verbs.counts().contexts == 1; }));
  verbs.set_open_hanging(false);
  EXPECT_TRUE(comes_true([&] { return verbs.counts().is_all_gone(); }));
}

// The module of soft-RoCE: loaded, there, built in, or missing where the others are.
TEST(ReadRdma, TellsWhetherTheKernelHasSoftRoce) {
  const PlantedRoot root;
  const auto lacks = [&] { return read_rdma(root.path(), Status::node("none")).lacks_soft_roce; };
  root.write("proc/sys/kernel/osrelease", "6.1.0-18-cloud-amd64\n");
  EXPECT_FALSE(lacks()) << "nothing is known without the list of modules";
  const std::string folder = "lib/modules/6.1.0-18-cloud-amd64/";
  root.write(folder + "modules.dep", "kernel/fs/9p/9p.ko: kernel/fs/netfs/netfs.ko\n");
  EXPECT_TRUE(lacks());
  EXPECT_EQ(read_rdma(root.path(), Status::node("none")).kernel, "6.1.0-18-cloud-amd64");
  root.write(folder + "modules.builtin", "kernel/drivers/infiniband/sw/rxe/rdma_rxe.ko\n");
  EXPECT_FALSE(lacks());
  root.write(folder + "modules.builtin", "");
  root.write(folder + "modules.dep",
             "kernel/fs/9p/9p.ko:\nkernel/drivers/infiniband/sw/rxe/rdma_rxe.ko.xz: a/b.ko.xz\n");
  EXPECT_FALSE(lacks());
  root.write(folder + "modules.dep", "");
  root.write("sys/module/rdma_rxe/refcnt", "1\n");
  EXPECT_FALSE(lacks());
}

TEST(ReadRdma, TakesTheNetworkOfTheAdapterWhereTheGidTableIsEmpty) {
  const PlantedRoot root;
  root.write("sys/class/infiniband/mlx5_0/ports/1/state", "1: DOWN\n");
  root.write("sys/class/infiniband/mlx5_0/device/net/ens1/mtu", "1500\n");
  const RdmaFacts facts = read_rdma(root.path(), Status::node("none"));
  EXPECT_EQ(facts.devices.front().networks, (std::map<int, std::string>{{1, "ens1"}}));
}

void plant_process(const PlantedRoot& root, const std::string& limit, const std::string& caps,
                   const std::string& users) {
  root.write("proc/self/limits",
             "Limit                     Soft Limit           Hard Limit           Units     \n"
             "Max open files            1024                 4096                 files     \n"
             "Max locked memory         " +
                 limit + "                65536                bytes\n");
  root.write("proc/self/status",
             "Name:\tshoal\nCapPrm:\t000001ffffffffff\nCapEff:\t" + caps + "\n");
  root.write("proc/self/uid_map", users + "\n");
}

// C73.
TEST(ReadLockedMemory, C73_TellsTheLimitAndWhoMayGoBeyondIt) {
  const std::string everyone = "         0          0 4294967295";
  const PlantedRoot root;
  plant_process(root, "65536", "0000000000000000", everyone);
  EXPECT_EQ(read_locked_memory(root.path()).limit, 65536U);
  EXPECT_FALSE(read_locked_memory(root.path()).is_exempt);
  plant_process(root, "unlimited", "0000000000000000", everyone);
  EXPECT_EQ(read_locked_memory(root.path()).limit, std::nullopt);
  plant_process(root, "65536", "0000000000004000", everyone);
  EXPECT_TRUE(read_locked_memory(root.path()).is_exempt);
  plant_process(root, "65536", "000001ffffffffff", "         0     100000      65536");
  EXPECT_FALSE(read_locked_memory(root.path()).is_exempt) << "root of a user namespace only";
}

TEST(ReadContainer, KnowsTheirMarks) {
  const PlantedRoot docker;
  EXPECT_EQ(read_container(docker.path()), "");
  docker.write(".dockerenv", "");
  EXPECT_EQ(read_container(docker.path()), "docker");
  const PlantedRoot podman;
  podman.write("run/.containerenv", "");
  EXPECT_EQ(read_container(podman.path()), "podman");
  const PlantedRoot nspawn;
  nspawn.write("run/systemd/container", "systemd-nspawn\n");
  EXPECT_EQ(read_container(nspawn.path()), "systemd-nspawn");
  using namespace std::string_literals;
  const PlantedRoot lxc;
  lxc.write("proc/1/environ", "TERM=linux\0container=lxc\0"s);
  EXPECT_EQ(read_container(lxc.path()), "lxc");
  const PlantedRoot pod;
  pod.write(".dockerenv", "");
  pod.write("proc/self/environ", "PATH=/bin\0KUBERNETES_SERVICE_HOST=10.0.0.1\0"s);
  EXPECT_EQ(read_container(pod.path()), "kubernetes") << "what pods need stands in their spec";
}

TEST(ReadFirewall, KnowsThoseThatStartWithTheSystem) {
  const PlantedRoot root;
  EXPECT_EQ(read_firewall(root.path()), "");
  root.write("etc/systemd/system/sysinit.target.wants/nftables.service", "");
  EXPECT_EQ(read_firewall(root.path()), "nftables");
  const PlantedRoot rhel;
  rhel.write("etc/systemd/system/multi-user.target.wants/nftables.service", "");
  EXPECT_EQ(read_firewall(rhel.path()), "nftables");
  root.write("etc/systemd/system/multi-user.target.wants/firewalld.service", "");
  EXPECT_EQ(read_firewall(root.path()), "firewalld");
  root.write("etc/ufw/ufw.conf", "# /etc/ufw/ufw.conf\nENABLED=no\nLOGLEVEL=low\n");
  EXPECT_EQ(read_firewall(root.path()), "firewalld");
  root.write("etc/ufw/ufw.conf", "# /etc/ufw/ufw.conf\nENABLED=yes\nLOGLEVEL=low\n");
  EXPECT_EQ(read_firewall(root.path()), "ufw");
}

// What is tried out works where tests run.
TEST(ReadFacts, OfThisMachineAreThere) {
  const DoctorFacts facts = read_facts(2);
  EXPECT_TRUE(facts.shared_memory.is_ok()) << facts.shared_memory.message();
  EXPECT_TRUE(facts.tcp.is_ok()) << facts.tcp.message();
  const auto loopback = std::ranges::find(facts.networks, Kind::kLoopback, &NetworkInterface::kind);
  ASSERT_NE(loopback, facts.networks.end());
  EXPECT_THAT(loopback->ipv4, ::testing::Contains("127.0.0.1"));
}

}  // namespace
}  // namespace shoal::cli

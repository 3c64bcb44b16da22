#include "cli/doctor/findings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cerrno>

namespace shoal::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Kind = NetworkInterface::Kind;

constexpr Wanted kAuto{};
const Wanted kVerbs{.link = fabric::LinkKind::kVerbs};
const Wanted kTcp{.link = fabric::LinkKind::kTcp};

NetworkInterface ethernet() {
  return {.name = "eth1",
          .kind = Kind::kEthernet,
          .is_up = true,
          .has_carrier = true,
          .mtu = 9000,
          .ipv4 = {"192.0.2.1"},
          .ipv6 = {"fe80::1"}};
}

fabric::PortFacts roce_port() {
  return {.device = "mlx5_0",
          .number = 1,
          .state = "active",
          .link = "Ethernet",
          .mtu = 4096,
          .gbit_per_second = 100,
          .firmware = "16.35",
          .addresses = {"fe80::1", "192.0.2.1"},
          .physical_state = "link up",
          .mtu_max = 4096,
          .gids = {{0, "RoCE v1", "fe80::1"},
                   {1, "RoCE v2", "fe80::1"},
                   {2, "RoCE v1", "192.0.2.1"},
                   {3, "RoCE v2", "192.0.2.1"}}};
}

// A machine on which nothing is wrong, with one port of RoCE.
DoctorFacts healthy() {
  DoctorFacts facts;
  facts.networks = {ethernet()};
  facts.rdma.devices = {
      {.name = "mlx5_0", .uverbs = "uverbs0", .has_node = true, .networks = {{1, "eth1"}}}};
  facts.rdma.ports = {roce_port()};
  return facts;
}

// The finding with this id; CHECK-fails where there is none.
Finding finding(const std::vector<Finding>& findings, std::string_view id) {
  const auto found = std::ranges::find(findings, id, &Finding::id);
  CHECK_MSG(found != findings.end(), std::string(id).c_str());
  return *found;
}

bool has(const std::vector<Finding>& findings, std::string_view id) {
  return std::ranges::find(findings, id, &Finding::id) != findings.end();
}

// What RDMA wanted makes of it: a problem of that id, whose words are these.
void expect_problem(const DoctorFacts& facts, std::string_view id, std::string_view what,
                    std::string_view remedy) {
  const auto findings = judge(facts, kVerbs);
  ASSERT_TRUE(has(findings, id)) << id;
  const Finding found = finding(findings, id);
  EXPECT_EQ(found.level, Level::kProblem);
  EXPECT_THAT(found.what, HasSubstr(std::string(what)));
  EXPECT_THAT(found.remedy, HasSubstr(std::string(remedy)));
  EXPECT_FALSE(verdict(findings, kVerbs).is_ok());
  // Nobody who asked for something else is stopped by it.
  EXPECT_TRUE(verdict(judge(facts, kAuto), kAuto).is_ok());
  EXPECT_EQ(finding(judge(facts, kTcp), id).level, Level::kNote);
}

TEST(Doctor, FindsNothingWrongWithAMachineThatIsWell) {
  for (const Wanted& wanted : {kAuto, kVerbs, kTcp}) {
    const auto findings = judge(healthy(), wanted);
    for (const Finding& found : findings) {
      EXPECT_EQ(found.level, Level::kOk) << found.id << ": " << found.what;
    }
    EXPECT_TRUE(verdict(findings, wanted).is_ok());
  }
  EXPECT_THAT(finding(judge(healthy(), kAuto), "rdma-port").what,
              AllOf(HasSubstr("mlx5_0 port 1: active, Ethernet, 100 Gbit/s, MTU 4096"),
                    HasSubstr("192.0.2.1 (GID 3, RoCE v2) of eth1")));
}

TEST(Doctor, NoLibrary) {
  DoctorFacts facts = healthy();
  facts.rdma.library = Status::node("no RDMA library: libibverbs.so.1");
  facts.rdma.ports.clear();
  expect_problem(facts, "rdma-library", "libibverbs.so.1", "apt install libibverbs1");
}

TEST(Doctor, NoDevice) {
  DoctorFacts facts = healthy();
  facts.rdma.devices.clear();
  facts.rdma.ports.clear();
  expect_problem(facts, "rdma-device", "no RDMA device",
                 "modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth1");
  EXPECT_EQ(finding(judge(facts, kAuto), "rdma-device").level, Level::kNote)
      << "a machine without RDMA is an ordinary one";
  facts.rdma.has_soft_roce = true;
  facts.networks.clear();
  expect_problem(facts, "rdma-device", "no RDMA device",
                 "trying it out): rdma link add rxe0 type rxe netdev INTERFACE");
}

TEST(Doctor, NoDeviceForAnAdapterWhoseDriverLacksItsHalf) {
  DoctorFacts facts = healthy();
  facts.rdma.devices.clear();
  facts.rdma.ports.clear();
  expect_problem(facts, "rdma-device", "no RDMA device", "apt install rdma-core");
  expect_problem(facts, "rdma-device", "no RDMA device", "modprobe mlx5_ib (bnxt_re, irdma, qedr)");
}

TEST(Doctor, NoDeviceAndNoModuleForSoftRoce) {
  DoctorFacts facts = healthy();
  facts.rdma.devices.clear();
  facts.rdma.ports.clear();
  facts.rdma.lacks_soft_roce = true;
  facts.rdma.kernel = "6.1.0-18-cloud-amd64";
  expect_problem(facts, "rdma-device",
                 "its kernel (6.1.0-18-cloud-amd64) no module for soft-RoCE (rdma_rxe)",
                 "apt install linux-image-amd64 and start that kernel, then modprobe rdma_rxe");
  facts.rdma.kernel = "6.8.0-40-generic";
  expect_problem(facts, "rdma-device", "its kernel (6.8.0-40-generic)",
                 "linux-modules-extra-6.8.0-40-generic), then modprobe rdma_rxe");
}

TEST(Doctor, NoDeviceInAContainer) {
  DoctorFacts facts = healthy();
  facts.rdma.devices.clear();
  facts.rdma.ports.clear();
  facts.container = "docker";
  expect_problem(facts, "rdma-device", "this container (docker)",
                 "--device /dev/infiniband --network host");
  facts.container = "kubernetes";
  expect_problem(facts, "rdma-device", "this container (kubernetes)", "hostNetwork: true");
}

TEST(Doctor, TheKernelOffersItToNoProgram) {
  DoctorFacts facts = healthy();
  facts.rdma.devices.front().uverbs.clear();
  facts.rdma.ports.clear();
  expect_problem(facts, "rdma-kernel", "mlx5_0", "modprobe ib_uverbs");
}

TEST(Doctor, DevicesThatCannotBeListed) {
  DoctorFacts facts = healthy();
  facts.rdma.ports.clear();
  facts.rdma.listing = Status::node("the RDMA devices cannot be listed: Permission denied");
  expect_problem(facts, "rdma-listing", "cannot be listed: Permission", "dmesg");
  EXPECT_FALSE(has(judge(facts, kVerbs), "rdma-provider")) << "nothing is known of drivers";
}

TEST(Doctor, ADriverThatDoesNotAnswer) {
  DoctorFacts facts = healthy();
  facts.rdma.ports.clear();
  facts.rdma.is_silent = true;
  expect_problem(facts, "rdma-driver", "the driver of an RDMA device does not answer", "dmesg");
  EXPECT_FALSE(has(judge(facts, kVerbs), "rdma-provider"));
  facts.rdma.devices.clear();
  EXPECT_FALSE(has(judge(facts, kVerbs), "rdma-driver"));
}

TEST(Doctor, NoFileOfTheDevice) {
  DoctorFacts facts = healthy();
  facts.rdma.devices.front().has_node = false;
  facts.rdma.ports.clear();
  expect_problem(facts, "rdma-node", "/dev/infiniband/uverbs0", "devtmpfs: mount that on /dev");
  facts.container = "podman";
  expect_problem(facts, "rdma-node", "/dev/infiniband/uverbs0", "--device /dev/infiniband");
}

TEST(Doctor, C73_NoPermissionOnTheDevice) {
  DoctorFacts facts = healthy();
  facts.rdma.devices.front().open_error = EACCES;
  facts.rdma.ports.clear();
  expect_problem(facts, "rdma-permission",
                 "may not open /dev/infiniband/uverbs0 (Permission denied)",
                 "join the group that `ls -l /dev/infiniband/uverbs0` shows");
}

// In a container whose file of the device is that of a mounted folder.
TEST(Doctor, C73_TheControlGroupDeniesTheDevice) {
  DoctorFacts facts = healthy();
  facts.rdma.devices.front().open_error = EPERM;
  facts.rdma.ports = {{.device = "mlx5_0", .state = "cannot be opened"}};
  expect_problem(facts, "rdma-permission", "the control group denies", "DeviceAllow=");
  facts.container = "docker";
  expect_problem(facts, "rdma-permission", "(Operation not permitted)", "--device /dev/infiniband");
  facts.rdma.devices.front().open_error = EIO;
  expect_problem(facts, "rdma-open", "uverbs0 cannot be opened: Input/output error", "dmesg");
}

TEST(Doctor, NoProvider) {
  DoctorFacts facts = healthy();
  facts.rdma.ports.clear();
  expect_problem(facts, "rdma-provider", "no driver for it", "ibverbs-providers");
}

TEST(Doctor, ADeviceThatCannotBeOpened) {
  DoctorFacts facts = healthy();
  facts.rdma.ports = {{.device = "mlx5_0", .state = "cannot be opened"}};
  expect_problem(facts, "rdma-open", "mlx5_0 cannot be opened", "dmesg");
}

TEST(Doctor, APortThatIsDown) {
  DoctorFacts facts = healthy();
  facts.rdma.ports.front().state = "down";
  facts.rdma.ports.front().physical_state = "polling";
  expect_problem(facts, "rdma-port", "mlx5_0 port 1 is down (physically: polling)", "cable");
  facts.networks.front().is_up = facts.networks.front().has_carrier = false;
  facts.rdma.ports.front().physical_state = "disabled";
  expect_problem(facts, "rdma-port", "disabled", "ip link set eth1 up");
}

TEST(Doctor, AnInfiniBandPortThatWasSwitchedOff) {
  DoctorFacts facts = healthy();
  facts.rdma.ports.front().link = "InfiniBand";
  facts.rdma.ports.front().state = "down";
  facts.rdma.ports.front().physical_state = "disabled";
  facts.networks.front().is_up = facts.networks.front().has_carrier = false;
  expect_problem(facts, "rdma-port", "disabled", "ibportstate");
  facts.rdma.ports.front().physical_state = "polling";
  expect_problem(facts, "rdma-port", "polling", "cable");
}

TEST(Doctor, AnInfiniBandPortWithoutASubnetManager) {
  DoctorFacts facts = healthy();
  facts.rdma.ports.front().link = "InfiniBand";
  facts.rdma.ports.front().state = "initializing";
  expect_problem(facts, "rdma-port", "initializing", "opensm");
}

// C70: link-local GIDs lead nowhere.
TEST(Doctor, C70_NoIpv4AddressOnThePort) {
  DoctorFacts facts = healthy();
  facts.networks.front().ipv4.clear();
  facts.rdma.ports.front().addresses = {"fe80::1"};
  facts.rdma.ports.front().gids.resize(2);
  expect_problem(facts, "rdma-address", "mlx5_0 port 1 (eth1) has no IPv4 address",
                 "ip addr add 192.168.50.1/24 dev eth1");
  facts.rdma.ports.front().link = "InfiniBand";
  expect_problem(facts, "rdma-address", "no IPv4 address", "modprobe ib_ipoib");
}

TEST(Doctor, C70_NoGidForTheAddress) {
  DoctorFacts facts = healthy();
  facts.rdma.ports.front().addresses = {"fe80::1"};
  facts.rdma.ports.front().gids.resize(2);
  expect_problem(facts, "rdma-gid",
                 "mlx5_0 port 1 (eth1): no RoCE v2 GID for its address 192.0.2.1",
                 "ip addr del, then ip addr add, on eth1");
}

TEST(Doctor, C70_OnlyVersion1OfRoce) {
  DoctorFacts facts = healthy();
  facts.rdma.ports.front().addresses = {"fe80::1"};
  facts.rdma.ports.front().gids.resize(3);
  expect_problem(facts, "rdma-gid", "no RoCE v2 GID", "RoCE v1 only");
}

TEST(Doctor, C70_AGidOfAnAddressThatIsElsewhere) {
  DoctorFacts facts = healthy();
  facts.networks.front().ipv4 = {"198.51.100.7"};
  expect_problem(facts, "rdma-gid", "its GID 192.0.2.1 is an address that no interface here has",
                 "network namespace");
  facts.container = "docker";
  expect_problem(facts, "rdma-gid", "192.0.2.1", "--network host");
}

// C73: the limit, what is needed, and the way to raise it.
TEST(Doctor, C73_TooLittleMemoryMayBeLocked) {
  DoctorFacts facts = healthy();
  facts.locked.limit = 65536;
  expect_problem(facts, "locked-memory", "65536 bytes", "LimitMEMLOCK=infinity");
  expect_problem(facts, "locked-memory", std::to_string(registered_bytes(2)), "limits.d");
  EXPECT_EQ(finding(judge(facts, kAuto), "locked-memory").level, Level::kNote)
      << "auto does without RDMA";
  facts.locked.is_exempt = true;
  EXPECT_EQ(finding(judge(facts, kVerbs), "locked-memory").level, Level::kOk);
  // Enough for a pair, not for a large group.
  facts.locked = {.limit = registered_bytes(3)};
  EXPECT_EQ(finding(judge(facts, kVerbs), "locked-memory").level, Level::kOk);
  const Wanted four{.link = fabric::LinkKind::kVerbs, .nodes = 4};
  EXPECT_EQ(finding(judge(facts, four), "locked-memory").level, Level::kProblem);
  // Without devices it is nobody's concern unless RDMA is asked for.
  facts.rdma.devices.clear();
  facts.rdma.ports.clear();
  EXPECT_EQ(finding(judge(facts, four), "locked-memory").level, Level::kProblem);
  EXPECT_FALSE(has(judge(facts, {.link = std::nullopt, .nodes = 4}), "locked-memory"));
  EXPECT_FALSE(has(judge(facts, kTcp), "locked-memory"));
}

TEST(Doctor, WhatKeepsRdmaFromBeingUsedIsANoteWhereNobodyAskedForIt) {
  DoctorFacts facts = healthy();
  facts.rdma.ports.front().state = "down";
  facts.locked.limit = 65536;
  for (const Finding& found : judge(facts, kAuto)) EXPECT_LE(found.level, Level::kNote) << found.id;
}

TEST(Doctor, ASmallMtuIsAWarning) {
  DoctorFacts facts = healthy();
  facts.rdma.ports.front().mtu = 1024;
  facts.networks.front().mtu = 1500;
  const auto findings = judge(facts, kVerbs);
  const Finding found = finding(findings, "rdma-mtu");
  EXPECT_EQ(found.level, Level::kWarning);
  EXPECT_THAT(found.what, HasSubstr("MTU 1024 where 4096 would do, since eth1 has 1500"));
  EXPECT_THAT(found.remedy, HasSubstr("ip link set eth1 mtu 4200"));
  EXPECT_TRUE(verdict(findings, kVerbs).is_ok()) << "it works";
  facts.rdma.ports.front().mtu_max = 1024;
  EXPECT_FALSE(has(judge(facts, kVerbs), "rdma-mtu")) << "the device can do no more";
}

TEST(Doctor, ASmallMtuOfInfiniBandIsTheFarEnds) {
  DoctorFacts facts = healthy();
  facts.rdma.ports.front().link = "InfiniBand";
  facts.rdma.ports.front().mtu = 2048;
  const Finding found = finding(judge(facts, kVerbs), "rdma-mtu");
  EXPECT_THAT(found.what, HasSubstr("MTU 2048 where 4096 would do"));
  EXPECT_THAT(found.remedy, HasSubstr("the port at the far end, or the switch"));
}

TEST(Doctor, ARateThatIsNotKnownIsNotZero) {
  DoctorFacts facts = healthy();
  facts.rdma.ports.front().gbit_per_second = 0;
  EXPECT_THAT(finding(judge(facts, kVerbs), "rdma-port").what, HasSubstr(", rate unknown, MTU"));
}

DoctorFacts with_second_port() {
  DoctorFacts facts = healthy();
  fabric::PortFacts second = roce_port();
  second.number = 2;
  second.addresses = {"198.51.100.7"};
  second.gids = {{1, "RoCE v2", "198.51.100.7"}};
  facts.rdma.ports.push_back(second);
  facts.rdma.devices.front().networks[2] = "eth2";
  facts.networks.push_back(ethernet());
  facts.networks.back().name = "eth2";
  facts.networks.back().ipv4 = {"198.51.100.7"};
  return facts;
}

TEST(Doctor, C71_PortsOfDifferentMtu) {
  DoctorFacts facts = with_second_port();
  EXPECT_FALSE(has(judge(facts, kVerbs), "rdma-mtu-mismatch"));
  facts.rdma.ports.back().mtu = 1024;
  const Finding found = finding(judge(facts, kVerbs), "rdma-mtu-mismatch");
  EXPECT_EQ(found.level, Level::kWarning);
  EXPECT_THAT(found.what, HasSubstr("mlx5_0 port 2 has MTU 1024, mlx5_0 port 1 has 4096"));
  facts.rdma.ports.back().link = "InfiniBand";
  EXPECT_FALSE(has(judge(facts, kVerbs), "rdma-mtu-mismatch")) << "they never meet";
}

TEST(Doctor, APortBesideOneThatWorksIsNoProblem) {
  DoctorFacts facts = with_second_port();
  facts.rdma.ports.back().state = "down";
  const auto findings = judge(facts, kVerbs);
  EXPECT_TRUE(verdict(findings, kVerbs).is_ok());
  EXPECT_TRUE(std::ranges::any_of(findings, [](const Finding& found) {
    return found.level == Level::kWarning && found.what.starts_with("mlx5_0 port 2 is down");
  }));
}

TEST(Doctor, AFirewallIsNamedWithRocesPort) {
  DoctorFacts facts = healthy();
  for (const auto& [firewall, command] :
       {std::pair("ufw", "ufw allow 4791/udp"),
        std::pair("firewalld", "--add-port=4791/udp && firewall-cmd --reload"),
        std::pair("nftables", "nft insert rule inet filter input udp dport 4791 accept"),
        std::pair("nftables", "/etc/nftables.conf")}) {
    facts.firewall = firewall;
    const Finding found = finding(judge(facts, kVerbs), "rdma-firewall");
    EXPECT_EQ(found.level, Level::kNote);
    EXPECT_THAT(found.what, HasSubstr(firewall));
    EXPECT_THAT(found.remedy, HasSubstr(command));
  }
  facts.rdma.ports.front().link = "InfiniBand";
  EXPECT_FALSE(has(judge(facts, kVerbs), "rdma-firewall"));
}

TEST(Doctor, NoSharedMemory) {
  DoctorFacts facts = healthy();
  facts.shared_memory = Status::node("memfd_create: Too many open files");
  const Wanted shm{.link = fabric::LinkKind::kShm};
  const Finding found = finding(judge(facts, shm), "shared-memory");
  EXPECT_EQ(found.level, Level::kProblem);
  EXPECT_THAT(found.what, HasSubstr("Too many open files"));
  EXPECT_THAT(found.remedy, HasSubstr("ulimit -n"));
  EXPECT_EQ(finding(judge(facts, kAuto), "shared-memory").level, Level::kWarning) << "there is TCP";
  EXPECT_EQ(finding(judge(facts, kTcp), "shared-memory").level, Level::kNote);
}

TEST(Doctor, NoUcxIsAProblemForWhoeverWantsItOnly) {
  DoctorFacts facts = healthy();
  EXPECT_EQ(finding(judge(facts, kAuto), "ucx").level, Level::kOk);
  facts.ucx = Status::node("no UCX library: libucp.so.0: cannot open shared object file");
  EXPECT_EQ(finding(judge(facts, kAuto), "ucx").level, Level::kNote);
  const Finding found = finding(judge(facts, {.link = fabric::LinkKind::kUcx}), "ucx");
  EXPECT_EQ(found.level, Level::kProblem);
  EXPECT_THAT(found.what, HasSubstr("libucp.so.0"));
  EXPECT_THAT(found.remedy, HasSubstr("libucx0"));
}

TEST(Doctor, NoTcpWithinTheMachine) {
  DoctorFacts facts = healthy();
  facts.tcp = Status::node("127.0.0.1:1: no route");
  for (const Wanted& wanted : {kTcp, kVerbs, Wanted{.link = fabric::LinkKind::kUcx}}) {
    const Finding found = finding(judge(facts, wanted), "tcp");
    EXPECT_EQ(found.level, Level::kProblem);
    EXPECT_THAT(found.remedy, HasSubstr("ip link set lo up"));
  }
  EXPECT_EQ(finding(judge(facts, kAuto), "tcp").level, Level::kWarning) << "there is shared memory";
  const Wanted shm{.link = fabric::LinkKind::kShm};
  EXPECT_EQ(finding(judge(facts, shm), "tcp").level, Level::kNote);
  facts.shared_memory = Status::node("memfd_create: Too many open files");
  EXPECT_EQ(finding(judge(facts, kAuto), "tcp").level, Level::kProblem) << "there is nothing";
}

// C68: an address of a container's bridge or of a VPN is not where others should look for us.
TEST(Doctor, C68_TellsTheNetworksForOthersFromThoseThatAreNot) {
  DoctorFacts facts = healthy();
  facts.networks.push_back({.name = "docker0",
                            .kind = Kind::kBridge,
                            .is_up = true,
                            .has_carrier = true,
                            .mtu = 1500,
                            .ipv4 = {"172.17.0.1"}});
  facts.networks.push_back({.name = "wg0",
                            .kind = Kind::kTunnel,
                            .is_up = true,
                            .has_carrier = true,
                            .mtu = 1420,
                            .ipv4 = {"10.8.0.2"}});
  facts.networks.push_back({.name = "eth7",
                            .kind = Kind::kEthernet,
                            .is_up = true,
                            .has_carrier = true,
                            .mtu = 1500,
                            .ipv6 = {"fe80::7"}});
  const auto findings = judge(facts, kAuto);
  EXPECT_EQ(finding(findings, "networks").what,
            "networks to other machines: eth1 (Ethernet, MTU 9000): 192.0.2.1");
  EXPECT_EQ(finding(findings, "networks-unfit").what,
            "not for other machines: docker0 (bridge, MTU 1500): 172.17.0.1; wg0 (VPN, MTU 1420): "
            "10.8.0.2; eth7 (Ethernet): only link-local addresses");
}

// C68: the network of a server's controller (BMC) has addresses of no other machine, in either
// family; an interface without any is said to have none.
TEST(Doctor, C68_LinkLocalAddressesOfIpv4LeadNowhere) {
  DoctorFacts facts = healthy();
  facts.networks.front().name = "enx0";
  facts.networks.front().ipv4 = {"169.254.3.1"};
  facts.networks.push_back(ethernet());
  facts.networks.back().ipv4 = {"169.254.3.1"};
  facts.networks.back().ipv6 = {"2001:db8::1"};
  facts.networks.push_back(ethernet());
  facts.networks.back().name = "eth9";
  facts.networks.back().ipv4.clear();
  facts.networks.back().ipv6.clear();
  const auto findings = judge(facts, kAuto);
  EXPECT_EQ(finding(findings, "networks").what,
            "networks to other machines: eth1 (Ethernet, MTU 9000): 2001:db8::1");
  EXPECT_EQ(finding(findings, "networks-unfit").what,
            "not for other machines: enx0 (Ethernet): only link-local addresses; eth9 (Ethernet): "
            "no address");
  EXPECT_FALSE(has(findings, "networks-address"));
}

// C68: hosts of virtual machines have their own address on a bridge.
TEST(Doctor, C68_ABridgeWithHardwareLeadsToOthers) {
  DoctorFacts facts = healthy();
  facts.networks.front().ipv4.clear();
  facts.networks.push_back({.name = "vmbr0",
                            .kind = Kind::kBridge,
                            .is_up = true,
                            .has_carrier = true,
                            .has_hardware = true,
                            .mtu = 1500,
                            .ipv4 = {"192.0.2.1"}});
  EXPECT_EQ(finding(judge(facts, kAuto), "networks").what,
            "networks to other machines: vmbr0 (bridge, MTU 1500): 192.0.2.1");
}

TEST(Doctor, C68_SeveralNetworksAreToldApart) {
  const Finding found = finding(judge(with_second_port(), kAuto), "networks");
  EXPECT_EQ(found.level, Level::kNote);
  EXPECT_THAT(found.what, AllOf(HasSubstr("eth1 (Ethernet, MTU 9000): 192.0.2.1"),
                                HasSubstr("eth2 (Ethernet, MTU 9000): 198.51.100.7")));
  EXPECT_THAT(found.remedy, HasSubstr("the fastest one"));
  DoctorFacts alone = healthy();
  alone.networks.clear();
  EXPECT_THAT(finding(judge(alone, kAuto), "networks").what, HasSubstr("no network"));
}

TEST(Doctor, C68_OneAddressOnTwoInterfaces) {
  DoctorFacts facts = with_second_port();
  facts.networks.back().ipv4 = {"192.0.2.1"};
  const Finding found = finding(judge(facts, kAuto), "networks-address");
  EXPECT_EQ(found.level, Level::kWarning);
  EXPECT_THAT(found.what, HasSubstr("192.0.2.1 belongs to eth1 and eth2"));
}

TEST(Doctor, RdmaOverThunderboltOnMacos) {
  DoctorFacts facts = healthy();
  facts.thunderbolt = {.is_enabled = true, .generation = 5};
  EXPECT_EQ(finding(judge(facts, kVerbs), "thunderbolt").level, Level::kOk);
  EXPECT_FALSE(has(judge(facts, kVerbs), "rdma-port")) << "Linux's words have no place there";
  facts.thunderbolt = {.is_enabled = false, .generation = 5};
  expect_problem(facts, "thunderbolt-disabled", "switched off", "Recovery");
  expect_problem(facts, "thunderbolt-disabled", "switched off", "rdma_ctl enable");
  facts.thunderbolt = {.is_enabled = true, .generation = 5, .bridge = "bridge0"};
  expect_problem(facts, "thunderbolt-bridge", "belong to bridge0", "remove the bridge");
  facts.thunderbolt = {.is_enabled = true, .generation = 4};
  expect_problem(facts, "thunderbolt-generation", "Thunderbolt 4", "--link tcp");
}

TEST(Doctor, CountsTheProblems) {
  DoctorFacts facts = healthy();
  facts.tcp = Status::node("no");
  EXPECT_EQ(verdict(judge(facts, kVerbs), kVerbs).message(),
            "1 problem keeps 2 nodes from being joined over verbs; each has its remedy");
  facts.rdma.ports.front().state = "down";
  EXPECT_THAT(verdict(judge(facts, kVerbs), kVerbs).message(), HasSubstr("2 problems keep"));
}

}  // namespace
}  // namespace shoal::cli

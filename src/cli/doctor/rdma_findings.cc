#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <set>
#include <string_view>

#include "cli/doctor/findings.h"
#include "cli/doctor/rdma_view.h"
#include "cli/support/format.h"
#include "fabric/verbs/verbs_rail.h"

namespace shoal::cli {
namespace {

using fabric::PortFacts;

// RDMA's largest packet, and the least MTU of Ethernet that carries it in every driver.
constexpr uint32_t kLargestMtu = 4096;
constexpr uint32_t kEthernetMtu = 4200;

bool is_ethernet(const PortFacts& port) { return port.link == "Ethernet"; }

std::string name_of(const PortFacts& port) {
  return fmt::format("{} port {}", port.device, port.number);
}

class RdmaJudge {
 public:
  RdmaJudge(const DoctorFacts& facts, const Wanted& wanted)
      : facts_(facts),
        rdma_(facts.rdma),
        wanted_(wanted),
        obstacle_(wanted.obstacle(fabric::LinkKind::kVerbs)) {
    for (const NetworkInterface& network : facts.networks) {
      addresses_.insert(network.ipv4.begin(), network.ipv4.end());
      addresses_.insert(network.ipv6.begin(), network.ipv6.end());
    }
  }

  std::vector<Finding> judge() {
    judge_library();
    if (rdma_.devices.empty()) judge_no_device();
    if (rdma_.library.is_ok()) {
      for (const RdmaDevice& device : rdma_.devices) judge_device(device);
    }
    judge_mtus();
    judge_firewall();
    judge_locked_memory();
    // Obstacles of one port matter less when another one can be used.
    if (!usable_.empty()) {
      for (Finding& finding : obstacles_) finding.level = std::min(finding.level, Level::kWarning);
    }
    std::ranges::move(obstacles_, std::back_inserter(findings_));
    return std::move(findings_);
  }

 private:
  void add(Finding finding) { findings_.push_back(std::move(finding)); }
  // What keeps one device or port from being used.
  void add_obstacle(std::string id, std::string what, std::string remedy) {
    obstacles_.push_back({std::move(id), obstacle_, std::move(what), std::move(remedy)});
  }
  // What makes RDMA slower, or may.
  Level at_most_warning() const { return std::min(obstacle_, Level::kWarning); }

  void judge_library() {
    if (!rdma_.library.is_ok()) {
      add({"rdma-library", obstacle_, rdma_.library.message(),
           "Debian, Ubuntu: apt install libibverbs1 ibverbs-providers; Fedora, RHEL: dnf install "
           "libibverbs"});
    } else if (rdma_.devices.empty()) {
      return;
    } else if (rdma_.is_silent) {
      add({"rdma-driver", obstacle_, std::string(fabric::kSilentDriver),
           "look at the kernel's log (dmesg); what hangs in the kernel ends with a restart of the "
           "machine"});
    } else if (!rdma_.listing.is_ok()) {
      add({"rdma-listing", obstacle_, rdma_.listing.message(),
           "look at the kernel's log (dmesg), and at the permissions of /dev/infiniband"});
    }
  }

  // Of a network that soft-RoCE could run on.
  std::string ethernet_name() const {
    using Kind = NetworkInterface::Kind;
    const auto found = std::ranges::find_if(facts_.networks, [](const NetworkInterface& network) {
      return network.has_carrier && !network.ipv4.empty() &&
             (network.kind == Kind::kEthernet || network.kind == Kind::kThunderbolt ||
              network.kind == Kind::kVirtual);
    });
    return found == facts_.networks.end() ? "INTERFACE" : found->name;
  }

  // What must come before soft-RoCE can be switched on.
  std::string before_soft_roce() const {
    constexpr std::string_view kLoad = "modprobe rdma_rxe && ";
    constexpr std::string_view kCloud = "-cloud-";  // Debian's kernels for virtual machines
    if (rdma_.has_soft_roce) return {};
    if (!rdma_.lacks_soft_roce) return std::string(kLoad);
    const size_t cloud = rdma_.kernel.find(kCloud);
    if (cloud != std::string::npos) {
      return fmt::format("apt install linux-image-{} and start that kernel, then {}",
                         rdma_.kernel.substr(cloud + kCloud.size()), kLoad);
    }
    return fmt::format(
        "install the package with the rest of this kernel's modules (Ubuntu: apt install "
        "linux-modules-extra-{}), then {}",
        rdma_.kernel, kLoad);
  }

  // How the host's devices get into this container.
  std::string into_container() const {
    if (facts_.container == "kubernetes") {
      return "give the pod the devices of /dev/infiniband (a device plugin) and hostNetwork: true";
    }
    return "start the container with --device /dev/infiniband --network host --ulimit memlock=-1";
  }

  void judge_no_device() {
    if (!facts_.container.empty()) {
      add({"rdma-device", obstacle_,
           fmt::format("no RDMA device in this container ({})", facts_.container),
           "devices belong to the host: " + into_container()});
      return;
    }
    add({"rdma-device", obstacle_,
         fmt::format("this machine has no RDMA device{}",
                     rdma_.lacks_soft_roce
                         ? fmt::format(", and its kernel ({}) no module for soft-RoCE (rdma_rxe)",
                                       rdma_.kernel)
                         : ""),
         fmt::format("load the RDMA half of the adapter's driver: apt install rdma-core (dnf on "
                     "Fedora, RHEL) and start the machine again, or modprobe mlx5_ib (bnxt_re, "
                     "irdma, qedr); without such an adapter Linux does it in software (soft-RoCE, "
                     "for trying it out): {}rdma link add rxe0 type rxe netdev {}",
                     before_soft_roce(), ethernet_name())});
  }

  void judge_device(const RdmaDevice& device) {
    if (device.uverbs.empty()) {
      add_obstacle("rdma-kernel",
                   fmt::format("{}: the kernel lets no program reach it", device.name),
                   "modprobe ib_uverbs");
      return;
    }
    const std::string node = "/dev/infiniband/" + device.uverbs;
    if (!device.has_node) {
      add_obstacle("rdma-node", fmt::format("{}: there is no {}", device.name, node),
                   facts_.container.empty() ? "the kernel makes it in devtmpfs: mount that on /dev"
                                            : into_container());
      return;
    }
    if (device.open_error != 0) {
      judge_open_error(device, node);
      return;
    }
    // Nothing is known of ports.
    if (rdma_.is_silent || !rdma_.listing.is_ok()) return;
    const auto is_of_device = [&](const PortFacts& port) { return port.device == device.name; };
    if (std::ranges::none_of(rdma_.ports, is_of_device)) {
      add_obstacle("rdma-provider", fmt::format("{}: libibverbs has no driver for it", device.name),
                   "install the providers: ibverbs-providers (Debian, Ubuntu), libibverbs (Fedora, "
                   "RHEL), or that of the adapter's maker");
      return;
    }
    for (const PortFacts& port : rdma_.ports) {
      if (is_of_device(port)) judge_port(device, port);
    }
  }

  // The kernel makes the file for all users; who may not open it is kept from it by something else.
  void judge_open_error(const RdmaDevice& device, const std::string& node) {
    const std::string why = std::strerror(device.open_error);
    if (device.open_error == EACCES) {
      add_obstacle(
          "rdma-permission",
          fmt::format("{}: this user may not open {} ({})", device.name, node, why),
          fmt::format("a udev rule of this machine restricts it: join the group that `ls -l {}` "
                      "shows (usermod -aG GROUP USER), and log in again",
                      node));
    } else if (device.open_error == EPERM) {
      add_obstacle(
          "rdma-permission",
          fmt::format("{}: this user may not open {} ({}): the control group denies the device",
                      device.name, node, why),
          facts_.container.empty()
              ? "allow it in the service's unit: DeviceAllow=char-infiniband_verbs rw"
              : "a folder that is mounted into the container (-v) does not allow what is in it: " +
                    into_container());
    } else {
      add_obstacle("rdma-open", fmt::format("{}: {} cannot be opened: {}", device.name, node, why),
                   "look at the kernel's log (dmesg): driver and firmware must fit together");
    }
  }

  const NetworkInterface* network_of(const RdmaDevice& device, const PortFacts& port) const {
    const auto name = device.networks.find(port.number);
    if (name == device.networks.end()) return nullptr;
    const auto found = std::ranges::find(facts_.networks, name->second, &NetworkInterface::name);
    return found == facts_.networks.end() ? nullptr : &*found;
  }

  void judge_port(const RdmaDevice& device, const PortFacts& port) {
    if (port.state == "cannot be opened") {
      add_obstacle("rdma-open", fmt::format("{} cannot be opened", port.device),
                   "look at the kernel's log (dmesg): driver and firmware must fit together");
      return;
    }
    const NetworkInterface* network = network_of(device, port);
    if (port.state != "active") {
      judge_inactive(port, network);
      return;
    }
    const std::string* address = fabric::meeting_address(port, addresses_);
    if (address == nullptr) {
      judge_address(port, network);
      return;
    }
    usable_.push_back({&port, network});
    const auto gid = std::ranges::find_if(port.gids, [&](const fabric::GidFacts& entry) {
      return entry.address == *address && entry.type != "RoCE v1";
    });
    add({.id = "rdma-port",
         .what = fmt::format(
             "{}: active, {}, {}, MTU {}, address {}{}{}", name_of(port), port.link,
             rate_text(port.gbit_per_second), port.mtu, *address,
             gid == port.gids.end() ? "" : fmt::format(" (GID {}, {})", gid->index, gid->type),
             network == nullptr ? "" : " of " + network->name)});
  }

  void judge_inactive(const PortFacts& port, const NetworkInterface* network) {
    const std::string what =
        fmt::format("{} is {} (physically: {})", name_of(port), port.state, port.physical_state);
    std::string remedy = "connect its cable, and look at the far end's port";
    if (!is_ethernet(port)) {
      if (port.physical_state == "link up") {
        remedy = "start a subnet manager on one machine or on the switch: apt install opensm";
      } else if (port.physical_state == "disabled") {
        remedy =
            "somebody has switched it off: ibportstate (package infiniband-diags) enables it, here "
            "or at the switch";
      }
    } else if (network != nullptr && !network->is_up) {
      remedy = fmt::format("switch its network interface on: ip link set {} up", network->name);
    }
    add_obstacle("rdma-port", what, std::move(remedy));
  }

  // None of the port's GIDs is an address of this machine.
  void judge_address(const PortFacts& port, const NetworkInterface* network) {
    const std::string name = network == nullptr ? "INTERFACE" : network->name;
    const std::string of = network == nullptr ? "" : fmt::format(" ({})", network->name);
    const auto foreign = std::ranges::find_if_not(
        port.addresses, [](const std::string& address) { return address.starts_with("fe80"); });
    if (foreign != port.addresses.end()) {
      add_obstacle("rdma-gid",
                   fmt::format("{}{}: its GID {} is an address that no interface here has",
                               name_of(port), of, *foreign),
                   facts_.container.empty() ? "run where the interface is: in its network namespace"
                                            : "start the container with --network host");
      return;
    }
    if (network == nullptr || network->ipv4.empty()) {
      const std::string_view before = is_ethernet(port) ? "" : "modprobe ib_ipoib, then ";
      add_obstacle("rdma-address",
                   fmt::format("{}{} has no IPv4 address, and thus no GID to be reached by",
                               name_of(port), of),
                   fmt::format("{}ip addr add 192.168.50.1/24 dev {}, with another address of that "
                               "subnet on the other machine",
                               before, name));
      return;
    }
    const bool has_version_1 = std::ranges::any_of(port.gids, [&](const fabric::GidFacts& entry) {
      return entry.type == "RoCE v1" && entry.address == network->ipv4.front();
    });
    add_obstacle(
        "rdma-gid",
        fmt::format("{}{}: no {} GID for its address {}", name_of(port), of,
                    is_ethernet(port) ? "RoCE v2" : "matching", network->ipv4.front()),
        has_version_1
            ? "it does RoCE v1 only: switch on version 2 in the adapter's driver or firmware"
            : fmt::format("give the interface its address anew, so that the kernel makes "
                          "the GID: ip addr del, then ip addr add, on {}",
                          name));
  }

  void judge_mtus() {
    for (const Usable& usable : usable_) {
      const PortFacts& port = *usable.port;
      if (port.mtu >= std::min(port.mtu_max, kLargestMtu)) continue;
      std::string remedy =
          "the port at the far end, or the switch, allows no more (ibv_devinfo shows what each end "
          "could do): raise it there";
      std::string cause;
      if (is_ethernet(port)) {
        const std::string name = usable.network == nullptr ? "INTERFACE" : usable.network->name;
        remedy = fmt::format(
            "on both machines: ip link set {} mtu {}, where cables and switches "
            "carry that",
            name, kEthernetMtu);
        if (usable.network != nullptr) {
          cause = fmt::format(", since {} has {}", name, usable.network->mtu);
        }
      }
      add({"rdma-mtu", at_most_warning(),
           fmt::format("{}: MTU {} where {} would do{}: more packets for each message",
                       name_of(port), port.mtu, std::min(port.mtu_max, kLargestMtu), cause),
           std::move(remedy)});
    }
    judge_mtu_mismatch(true);
    judge_mtu_mismatch(false);
  }

  // C71: queue pairs take the smaller one of both ends; those of different link layers never meet.
  void judge_mtu_mismatch(bool of_ethernet) {
    std::vector<const PortFacts*> ports;
    for (const Usable& usable : usable_) {
      if (is_ethernet(*usable.port) == of_ethernet) ports.push_back(usable.port);
    }
    if (ports.empty()) return;
    const auto [least, most] = std::ranges::minmax_element(ports, {}, &PortFacts::mtu);
    const PortFacts& small = **least;
    const PortFacts& large = **most;
    if (small.mtu == large.mtu) return;
    add({"rdma-mtu-mismatch", at_most_warning(),
         fmt::format("{} has MTU {}, {} has {}: between them the smaller one holds", name_of(small),
                     small.mtu, name_of(large), large.mtu),
         "give both the same MTU, and all that lies between them"});
  }

  void judge_firewall() {
    const bool has_roce = std::ranges::any_of(
        usable_, [](const Usable& usable) { return is_ethernet(*usable.port); });
    if (!has_roce || facts_.firewall.empty()) return;
    std::string remedy =
        "nft insert rule inet filter input udp dport 4791 accept, and the same rule in "
        "/etc/nftables.conf (RHEL: /etc/sysconfig/nftables.conf), so that it lasts";
    if (facts_.firewall == "ufw") remedy = "ufw allow 4791/udp";
    if (facts_.firewall == "firewalld") {
      remedy = "firewall-cmd --permanent --add-port=4791/udp && firewall-cmd --reload";
    }
    add({"rdma-firewall", Level::kNote,
         fmt::format("{} may be active: RoCE v2 is UDP port 4791, and a firewall that passes TCP "
                     "only makes its first message vanish",
                     facts_.firewall),
         std::move(remedy)});
  }

  // C73.
  void judge_locked_memory() {
    const uint64_t needed = registered_bytes(wanted_.nodes);
    const LockedMemory& locked = facts_.locked;
    const bool suffices = locked.is_exempt || !locked.limit || *locked.limit >= needed;
    const bool is_asked = wanted_.link == fabric::LinkKind::kVerbs;
    if (rdma_.devices.empty() && (suffices || !is_asked)) return;
    const std::string has =
        locked.is_exempt || !locked.limit
            ? "no limit"
            : fmt::format("{} bytes ({})", *locked.limit, format_bytes(*locked.limit));
    const std::string needs = fmt::format("RDMA needs at least {} bytes ({}) in each of {} nodes",
                                          needed, format_bytes(needed), wanted_.nodes);
    if (suffices) {
      add({.id = "locked-memory",
           .what = fmt::format("locked memory: {} allowed; {}", has, needs)});
      return;
    }
    add({"locked-memory", obstacle_, fmt::format("locked memory: {} allowed; {}", has, needs),
         "ulimit -l unlimited; of a service: LimitMEMLOCK=infinity; at every login: \"* - memlock "
         "unlimited\" in /etc/security/limits.d/shoal.conf; of a container: --ulimit memlock=-1"});
  }

  struct Usable {
    const PortFacts* port;
    const NetworkInterface* network;
  };

  const DoctorFacts& facts_;
  const RdmaFacts& rdma_;
  const Wanted& wanted_;
  const Level obstacle_;
  std::set<std::string> addresses_;
  std::vector<Usable> usable_;
  std::vector<Finding> findings_;
  std::vector<Finding> obstacles_;
};

}  // namespace

uint64_t registered_bytes(int nodes) {
  const auto layout = fabric::LaneLayout::of(fabric::SlotClass{}, fabric::VerbsRules::linux_rc());
  return static_cast<uint64_t>(nodes - 1) * (layout.send_bytes() + layout.all_receive_bytes());
}

std::vector<Finding> judge_rdma(const DoctorFacts& facts, const Wanted& wanted) {
  return RdmaJudge(facts, wanted).judge();
}

std::vector<Finding> judge_thunderbolt(const ThunderboltFacts& facts, const Wanted& wanted) {
  constexpr int kGenerationMin = 5;
  const Level obstacle = wanted.obstacle(fabric::LinkKind::kVerbs);
  std::vector<Finding> findings;
  if (facts.generation < kGenerationMin) {
    findings.push_back({"thunderbolt-generation", obstacle,
                        fmt::format("RDMA over Thunderbolt needs Thunderbolt 5; this machine has "
                                    "Thunderbolt {}, whose devices cannot be opened",
                                    facts.generation),
                        "use --link tcp over the same cable"});
    return findings;
  }
  if (!facts.is_enabled) {
    findings.push_back({"thunderbolt-disabled", obstacle, "RDMA over Thunderbolt is switched off",
                        "start the Mac in Recovery, open Terminal there, run `rdma_ctl enable`, "
                        "and restart"});
  }
  if (!facts.bridge.empty()) {
    findings.push_back(
        {"thunderbolt-bridge", obstacle,
         fmt::format("the Thunderbolt ports belong to {}: RDMA needs each for itself",
                     facts.bridge),
         fmt::format("remove the bridge (System Settings, Network, or `ifconfig {} destroy`) and "
                     "give each port an address of a subnet of its own",
                     facts.bridge)});
  }
  if (findings.empty()) {
    findings.push_back({.id = "thunderbolt", .what = "RDMA over Thunderbolt is switched on"});
  }
  return findings;
}

}  // namespace shoal::cli

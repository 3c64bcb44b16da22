#include "cli/doctor/facts.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string_view>
#include <system_error>

#include "base/clock.h"
#include "base/os/control_groups.h"
#include "base/unique_fd.h"
#include "fabric/link/stream.h"
#include "fabric/shm/shm_group.h"
#include "fabric/tcp/address.h"
#include "fabric/ucx/ucx_table.h"

namespace shoal::cli {
namespace {

namespace fs = std::filesystem;

// Within one machine; a firewall that drops would else be waited for.
constexpr Nanoseconds kTcpDeadline = std::chrono::seconds(2);
constexpr int kPortsMax = 16;
constexpr int kGidsMax = 32;
// Interface types of the kernel (if_arp.h).
constexpr uint64_t kTypeInfiniBand = 32;
constexpr uint64_t kTypeLoopback = 772;
constexpr uint64_t kTypeNone = 65534;
constexpr unsigned kCapIpcLock = 14;

bool exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

// The names in a folder, sorted; none where there is no such folder.
std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  auto entry = fs::directory_iterator(folder, error);
  while (!error && entry != fs::directory_iterator()) {
    names.push_back(entry->path().filename());
    entry.increment(error);
  }
  std::ranges::sort(names);
  return names;
}

uint64_t parse_hex(std::string_view text) {
  if (text.starts_with("0x")) text.remove_prefix(2);
  uint64_t value = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

// The rest of the line of a file that begins so; empty where there is none.
std::string line_after(const std::string& path, std::string_view start) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(start)) continue;
    const size_t begin = line.find_first_not_of(" \t", start.size());
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

NetworkInterface::Kind kind_of(const std::string& folder) {
  using enum NetworkInterface::Kind;
  const uint64_t type = read_small_number(folder + "/type").value_or(0);
  if (type == kTypeLoopback) return kLoopback;
  if (type == kTypeInfiniBand) return kInfiniBand;
  if (type == kTypeNone || exists(folder + "/tun_flags")) return kTunnel;
  if (exists(folder + "/bridge")) return kBridge;
  if (exists(folder + "/wireless") || exists(folder + "/phy80211")) return kWireless;
  std::error_code error;
  const fs::path driver = fs::read_symlink(folder + "/device/driver", error);
  if (driver.filename() == "thunderbolt-net") return kThunderbolt;
  return exists(folder + "/device") ? kEthernet : kVirtual;
}

// The network interface of a device's port; empty where it has none.
std::string network_of(const std::string& device, int port) {
  for (int i = 0; i < kGidsMax; ++i) {
    std::string name =
        read_small_file(fmt::format("{}/ports/{}/gid_attrs/ndevs/{}", device, port, i));
    if (!name.empty()) return name;
  }
  const std::vector<std::string> names = names_in(device + "/device/net");
  const auto index = static_cast<size_t>(port - 1);
  return index < names.size() ? names[index] : std::string();
}

// "uverbs0" of a device; empty where the kernel offers none.
std::string uverbs_of(const std::string& root, const std::string& device) {
  const std::string folder = root + "/sys/class/infiniband_verbs/";
  for (const std::string& name : names_in(folder)) {
    if (read_small_file(folder + name + "/ibdev") == device) return name;
  }
  return {};
}

Status try_shared_memory(int nodes) {
  RETURN_IF_ERROR(fabric::reserve_shm_links(nodes));
  // All pairs of a large group take gigabytes; two ranks show whether the system lets us.
  return fabric::make_shm_links(2, fabric::SlotClass{}).status();
}

Status try_tcp() {
  const Deadline deadline = Deadline::after(kTcpDeadline);
  ASSIGN_OR_RETURN(const UniqueFd listener, fabric::listen_tcp(fabric::HostPort{"127.0.0.1", 0}));
  ASSIGN_OR_RETURN(const fabric::SocketAddress address, fabric::local_address(listener.get()));
  ASSIGN_OR_RETURN(const UniqueFd near, fabric::connect_tcp(address, deadline));
  pollfd arrival{.fd = listener.get(), .events = POLLIN, .revents = 0};
  (void)poll(&arrival, 1, fabric::poll_timeout_ms(deadline));
  const UniqueFd far(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!far.is_valid()) return Status::from_errno("accepting a connection", errno);
  std::array<std::byte, 1> byte{};
  RETURN_IF_ERROR(fabric::write_all(near.get(), byte, deadline));
  return fabric::read_all(far.get(), byte, deadline);
}

}  // namespace

Result<std::vector<InterfaceAddress>> interface_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return Status::from_errno("the interfaces' addresses", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(first, freeifaddrs);
  std::vector<InterfaceAddress> addresses;
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr) continue;
    const int family = entry->ifa_addr->sa_family;
    const void* bytes = nullptr;
    if (family == AF_INET) {
      bytes = &reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr;
    } else if (family == AF_INET6) {
      bytes = &reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr)->sin6_addr;
    }
    std::array<char, INET6_ADDRSTRLEN> text{};
    if (bytes == nullptr || inet_ntop(family, bytes, text.data(), text.size()) == nullptr) continue;
    addresses.push_back({entry->ifa_name, text.data()});
  }
  return addresses;
}

std::vector<NetworkInterface> read_networks(const std::string& root,
                                            const std::vector<InterfaceAddress>& addresses) {
  std::vector<NetworkInterface> networks;
  for (const std::string& name : names_in(root + "/sys/class/net")) {
    const std::string folder = fmt::format("{}/sys/class/net/{}", root, name);
    if (!exists(folder + "/flags")) continue;  // bonding_masters and the like
    const std::string state = read_small_file(folder + "/operstate");
    NetworkInterface network;
    network.name = name;
    network.kind = kind_of(folder);
    network.is_up = (parse_hex(read_small_file(folder + "/flags")) & IFF_UP) != 0;
    network.has_carrier = network.is_up && (state == "up" || state == "unknown");
    network.mtu = static_cast<uint32_t>(read_small_number(folder + "/mtu").value_or(0));
    for (const InterfaceAddress& address : addresses) {
      if (address.interface != name) continue;
      const bool is_ipv6 = address.text.find(':') != std::string::npos;
      (is_ipv6 ? network.ipv6 : network.ipv4).push_back(address.text);
    }
    networks.push_back(std::move(network));
  }
  return networks;
}

RdmaFacts read_rdma(const std::string& root, const Result<const fabric::VerbsTable*>& table) {
  RdmaFacts facts;
  facts.library = table.status();
  facts.has_soft_roce = exists(root + "/sys/module/rdma_rxe");
  for (const std::string& name : names_in(root + "/sys/class/infiniband")) {
    RdmaDevice device{.name = name, .uverbs = uverbs_of(root, name)};
    const std::string node = root + "/dev/infiniband/" + device.uverbs;
    device.has_node = !device.uverbs.empty() && exists(node);
    device.may_open = device.has_node && access(node.c_str(), R_OK | W_OK) == 0;
    const std::string folder = fmt::format("{}/sys/class/infiniband/{}", root, name);
    for (int port = 1; port <= kPortsMax; ++port) {
      if (!exists(fmt::format("{}/ports/{}", folder, port))) break;
      if (std::string network = network_of(folder, port); !network.empty()) {
        device.networks[port] = std::move(network);
      }
    }
    facts.devices.push_back(std::move(device));
  }
  if (!table.is_ok()) return facts;
  auto ports = fabric::list_ports(**table);
  facts.listing = ports.status();
  if (ports.is_ok()) facts.ports = std::move(*ports);
  return facts;
}

LockedMemory read_locked_memory(const std::string& root) {
  LockedMemory locked;
  const std::string limits = line_after(root + "/proc/self/limits", "Max locked memory");
  uint64_t limit = 0;
  const auto [end, error] = std::from_chars(limits.data(), limits.data() + limits.size(), limit);
  if (error == std::errc()) locked.limit = limit;
  const uint64_t capabilities = parse_hex(line_after(root + "/proc/self/status", "CapEff:"));
  // Of a user namespace's own root the kernel asks more: to be root outside of it.
  const std::string users = read_small_file(root + "/proc/self/uid_map");
  locked.is_exempt = ((capabilities >> kCapIpcLock) & 1U) != 0 && users.ends_with("4294967295");
  return locked;
}

std::string read_container(const std::string& root) {
  if (exists(root + "/.dockerenv")) return "docker";
  if (exists(root + "/run/.containerenv")) return "podman";
  return read_small_file(root + "/run/systemd/container");
}

std::string read_firewall(const std::string& root) {
  if (line_after(root + "/etc/ufw/ufw.conf", "ENABLED=") == "yes") return "ufw";
  const std::string services = root + "/etc/systemd/system/";
  if (exists(services + "multi-user.target.wants/firewalld.service")) return "firewalld";
  if (exists(services + "sysinit.target.wants/nftables.service")) return "nftables";
  return {};
}

DoctorFacts read_facts(int nodes) {
  const std::string root;
  DoctorFacts facts;
  facts.shared_memory = try_shared_memory(nodes);
  facts.tcp = try_tcp();
  facts.ucx = fabric::load_ucx().status();
  const auto addresses = interface_addresses();
  facts.networks =
      read_networks(root, addresses.is_ok() ? *addresses : std::vector<InterfaceAddress>());
  facts.rdma = read_rdma(root, fabric::load_verbs());
  facts.locked = read_locked_memory(root);
  facts.container = read_container(root);
  facts.firewall = read_firewall(root);
  return facts;
}

}  // namespace shoal::cli

#include "cli/doctor/facts.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/clock.h"
#include "base/os/control_groups.h"
#include "base/os/thread.h"
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
// Interfaces that one stands on.
constexpr size_t kLowerMax = 4096;
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

// Of an interface in this folder. A bridge names its ports in brif/, others what they stand on as
// lower_NAME.
bool has_hardware(const std::string& folder, const std::string& name) {
  std::vector<std::string> names = {name};
  for (size_t i = 0; i < names.size() && i < kLowerMax; ++i) {
    const std::string path = folder + names[i];
    if (exists(path + "/device")) return true;
    std::ranges::copy(names_in(path + "/brif"), std::back_inserter(names));
    if (exists(path + "/brif")) continue;
    constexpr std::string_view kLower = "lower_";
    for (const std::string& entry : names_in(path)) {
      if (entry.starts_with(kLower)) names.push_back(entry.substr(kLower.size()));
    }
  }
  return false;
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

// Whether the kernel's modules are there, and this one is not among them.
bool lacks_module(const std::string& root, const std::string& kernel, std::string_view module) {
  const std::string folder = fmt::format("{}/lib/modules/{}/", root, kernel);
  const std::string file = fmt::format("/{}.ko", module);
  if (!exists(folder + "modules.dep")) return false;
  for (const std::string_view list : {"modules.dep", "modules.builtin"}) {
    std::ifstream lines(folder + std::string(list));
    for (std::string line; std::getline(lines, line);) {  // "kernel/a/b.ko.xz: kernel/c.ko.xz"
      if (line.substr(0, line.find(':')).find(file) != std::string::npos) return false;
    }
  }
  return true;
}

// A variable of a process's environment; empty where there is none or it may not be read.
std::string variable_of(const std::string& process, std::string_view name) {
  std::ifstream file(process + "/environ");
  const std::string start = std::string(name) + "=";
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry.starts_with(start)) return entry.substr(start.size());
  }
  return {};
}

std::vector<RdmaDevice> read_devices(const std::string& root) {
  std::vector<RdmaDevice> devices;
  for (const std::string& name : names_in(root + "/sys/class/infiniband")) {
    RdmaDevice device{.name = name, .uverbs = uverbs_of(root, name)};
    device.has_node = !device.uverbs.empty() && exists(root + "/dev/infiniband/" + device.uverbs);
    const std::string folder = fmt::format("{}/sys/class/infiniband/{}", root, name);
    for (int port = 1; port <= kPortsMax; ++port) {
      if (!exists(fmt::format("{}/ports/{}", folder, port))) break;
      if (std::string network = network_of(folder, port); !network.empty()) {
        device.networks[port] = std::move(network);
      }
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

// What only the drivers tell.
struct Answers {
  std::vector<int> open_errors;  // of each file
  Result<std::vector<fabric::PortFacts>> ports = std::vector<fabric::PortFacts>();
};

// errno of opening a file to read and write. access() does not ask the control group of a
// container.
int open_error_of(const std::string& file) {
  const UniqueFd opened(open(file.c_str(), O_RDWR | O_CLOEXEC));
  return opened.is_valid() ? 0 : errno;
}

// None where a driver does not answer. files: those of the devices; empty ones are not opened.
std::optional<Answers> ask_drivers(const std::vector<std::string>& files,
                                   const Result<const fabric::VerbsTable*>& table) {
  // Copied, since a call that is given up goes on.
  std::optional<fabric::VerbsTable> calls;
  if (table.is_ok()) calls = **table;
  auto asked = run_bounded<Answers>(
      [files, calls] {
        Answers answers;
        for (const std::string& file : files) {
          answers.open_errors.push_back(file.empty() ? 0 : open_error_of(file));
        }
        if (calls) answers.ports = fabric::list_ports(*calls);
        return answers;
      },
      Deadline::after(fabric::kPortPatience));
  if (!asked.is_ok()) return std::nullopt;
  return std::move(*asked);
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

std::vector<NetworkInterface> read_networks(
    const std::string& root, const std::vector<fabric::InterfaceAddress>& addresses) {
  std::vector<NetworkInterface> networks;
  for (const std::string& name : names_in(root + "/sys/class/net")) {
    const std::string folder = fmt::format("{}/sys/class/net/{}", root, name);
    if (!exists(folder + "/flags")) continue;  // bonding_masters and the like
    const std::string state = read_small_file(folder + "/operstate");
    NetworkInterface network;
    network.name = name;
    network.kind = kind_of(folder);
    network.has_hardware = has_hardware(root + "/sys/class/net/", name);
    network.is_up = (parse_hex(read_small_file(folder + "/flags")) & IFF_UP) != 0;
    network.has_carrier = network.is_up && (state == "up" || state == "unknown");
    network.mtu = static_cast<uint32_t>(read_small_number(folder + "/mtu").value_or(0));
    for (const fabric::InterfaceAddress& address : addresses) {
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
  facts.kernel = read_small_file(root + "/proc/sys/kernel/osrelease");
  facts.has_soft_roce = exists(root + "/sys/module/rdma_rxe");
  facts.lacks_soft_roce = !facts.has_soft_roce && lacks_module(root, facts.kernel, "rdma_rxe");
  facts.devices = read_devices(root);
  std::vector<std::string> files;
  files.reserve(facts.devices.size());
  for (const RdmaDevice& device : facts.devices) {
    files.push_back(device.has_node ? root + "/dev/infiniband/" + device.uverbs : std::string());
  }
  auto answers = ask_drivers(files, table);
  facts.is_silent = !answers.has_value();
  if (facts.is_silent) return facts;
  for (size_t i = 0; i < files.size(); ++i) facts.devices[i].open_error = answers->open_errors[i];
  facts.listing = answers->ports.status();
  if (answers->ports.is_ok()) facts.ports = std::move(*answers->ports);
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
  if (!variable_of(root + "/proc/self", "KUBERNETES_SERVICE_HOST").empty()) return "kubernetes";
  if (exists(root + "/.dockerenv")) return "docker";
  if (exists(root + "/run/.containerenv")) return "podman";
  const std::string by_systemd = read_small_file(root + "/run/systemd/container");
  return by_systemd.empty() ? variable_of(root + "/proc/1", "container") : by_systemd;
}

std::string read_firewall(const std::string& root) {
  if (line_after(root + "/etc/ufw/ufw.conf", "ENABLED=") == "yes") return "ufw";
  const auto starts = [&root](const std::string& target, const std::string& service) {
    return exists(
        fmt::format("{}/etc/systemd/system/{}.target.wants/{}.service", root, target, service));
  };
  if (starts("multi-user", "firewalld")) return "firewalld";
  // Debian's and RHEL's targets.
  if (starts("sysinit", "nftables") || starts("multi-user", "nftables")) return "nftables";
  return {};
}

DoctorFacts read_facts(int nodes) {
  const std::string root;
  DoctorFacts facts;
  facts.shared_memory = try_shared_memory(nodes);
  facts.tcp = try_tcp();
  facts.ucx = fabric::load_ucx().status();
  const auto addresses = fabric::interface_addresses();
  facts.networks =
      read_networks(root, addresses.is_ok() ? *addresses : std::vector<fabric::InterfaceAddress>());
  facts.rdma = read_rdma(root, fabric::load_verbs());
  facts.locked = read_locked_memory(root);
  facts.container = read_container(root);
  facts.firewall = read_firewall(root);
  return facts;
}

}  // namespace shoal::cli

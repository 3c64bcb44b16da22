#include "fabric/verbs/verbs_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

#include "base/os/thread.h"
#include "fabric/tcp/interface_address.h"

namespace shoal::fabric {
namespace {

// Of a group that starts; a machine with many devices is still served.
constexpr Nanoseconds kStartPatience = std::chrono::seconds(10);
// GID tables are filled from their front; some have a thousand entries, each a system call to read.
constexpr int kEmptyGidsMax = 32;

Gid bytes_of(const ibv_gid& gid) {
  Gid bytes;
  std::memcpy(bytes.data(), gid.raw, bytes.size());
  return bytes;
}

std::string text_of(const Gid& gid) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  constexpr Gid kMapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool is_ipv4 = std::memcmp(gid.data(), kMapped.data(), 12) == 0;
  inet_ntop(is_ipv4 ? AF_INET : AF_INET6, gid.data() + (is_ipv4 ? 12 : 0), text.data(),
            text.size());
  return text.data();
}

std::string_view state_name(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initializing";
    case IBV_PORT_ARMED:
      return "armed";
    case IBV_PORT_ACTIVE:
      return "active";
    case IBV_PORT_ACTIVE_DEFER:
      return "active, deferred";
    default:
      return "unknown";
  }
}

// InfiniBand's codes of what a port's cable does (ibv_query_port(3)).
std::string_view physical_state_name(uint8_t state) {
  switch (state) {
    case 1:
      return "asleep";
    case 2:
      return "polling";
    case 3:
      return "disabled";
    case 4:
      return "training";
    case 5:
      return "link up";
    case 6:
      return "recovering from errors";
    case 7:
      return "in a test";
    default:
      return "unknown";
  }
}

std::string_view gid_type_name(ibv_gid_type type) {
  switch (type) {
    case IBV_GID_TYPE_ROCE_V1:
      return "RoCE v1";
    case IBV_GID_TYPE_ROCE_V2:
      return "RoCE v2";
    default:
      return "InfiniBand";
  }
}

// InfiniBand's codes of a lane's speed and of the number of lanes (ibv_query_port(3)); 0 for a
// speed that has none in 8 bits.
double gbit_per_second(const ibv_port_attr& port) {
  const double lane = [&] {
    switch (port.active_speed) {
      case 1:
        return 2.5;
      case 2:
        return 5.0;
      case 4:
      case 8:
        return 10.0;
      case 16:
        return 14.0;
      case 32:
        return 25.0;
      case 64:
        return 50.0;
      case 128:
        return 100.0;
      default:
        return 0.0;
    }
  }();
  switch (port.active_width) {
    case 2:
      return 4 * lane;
    case 4:
      return 8 * lane;
    case 8:
      return 12 * lane;
    case 16:
      return 2 * lane;
    default:
      return lane;
  }
}

struct GidEntry {
  int index = 0;
  ibv_gid gid{};
  ibv_gid_type type = IBV_GID_TYPE_IB;
};

// Of RoCE only version 2 crosses routers and firewalls like any UDP.
bool is_usable(const GidEntry& entry, const ibv_port_attr& port) {
  return port.link_layer != IBV_LINK_LAYER_ETHERNET || entry.type == IBV_GID_TYPE_ROCE_V2;
}

// By which addresses a peer gets to this entry: that of a RoCE GID, or those of the interfaces of
// IP over InfiniBand that have this GID.
std::vector<std::string> addresses_of(const GidEntry& entry, const ibv_port_attr& port,
                                      const std::vector<InfinibandAddress>& infiniband) {
  const Gid gid = bytes_of(entry.gid);
  if (port.link_layer == IBV_LINK_LAYER_ETHERNET) return {text_of(gid)};
  std::vector<std::string> addresses;
  for (const InfinibandAddress& one : infiniband) {
    if (one.gid == gid) addresses.push_back(one.address);
  }
  return addresses;
}

// An opened device, for looking at it.
class OpenDevice {
 public:
  OpenDevice(const VerbsTable& table, ibv_device* device)
      : table_(table), name_(table.get_device_name(device)), context_(table.open_device(device)) {}
  ~OpenDevice() {
    if (context_ != nullptr) table_.close_device(context_);
  }
  OpenDevice(const OpenDevice&) = delete;
  OpenDevice& operator=(const OpenDevice&) = delete;

  bool is_open() const { return context_ != nullptr; }
  const std::string& name() const { return name_; }
  std::optional<ibv_device_attr> attributes() const {
    ibv_device_attr attributes{};
    if (table_.query_device(context_, &attributes) != 0) return std::nullopt;
    return attributes;
  }
  std::optional<ibv_port_attr> port(uint8_t number) const {
    ibv_port_attr attributes{};
    if (table_.query_port(context_, number, &attributes) != 0) return std::nullopt;
    return attributes;
  }
  std::vector<GidEntry> gids(uint8_t number, const ibv_port_attr& port) const {
    std::vector<GidEntry> found;
    int empty = 0;
    for (int i = 0; i < port.gid_tbl_len && empty < kEmptyGidsMax; ++i) {
      GidEntry entry{.index = i};
      const bool is_there = table_.query_gid_type(context_, number, i, &entry.type) == 0 &&
                            table_.query_gid(context_, number, i, &entry.gid) == 0;
      empty = is_there ? 0 : empty + 1;
      if (is_there) found.push_back(entry);
    }
    return found;
  }

 private:
  const VerbsTable& table_;
  std::string name_;
  ibv_context* context_;
};

// Calls fn(device) for each device until it gives true. kNode: they cannot be listed.
template <typename Fn>
Status for_each_device(const VerbsTable& table, Fn fn) {
  int count = 0;
  errno = 0;
  const std::unique_ptr<ibv_device*, void (*)(ibv_device**)> list(table.get_device_list(&count),
                                                                  table.free_device_list);
  if (list == nullptr && errno == ENOSYS) return Status::ok();  // a kernel without any RDMA
  if (list == nullptr) {
    return Status::node(fmt::format("the RDMA devices cannot be listed: {}", std::strerror(errno)));
  }
  for (int i = 0; i < count; ++i) {
    const OpenDevice device(table, list.get()[i]);
    if (fn(device)) break;
  }
  return Status::ok();
}

}  // namespace

std::optional<Gid> gid_of(const SocketAddress& address) {
  Gid gid{};
  if (address.storage.ss_family == AF_INET) {
    const auto& ip = reinterpret_cast<const sockaddr_in&>(address.storage);
    gid[10] = gid[11] = 0xff;
    std::memcpy(gid.data() + 12, &ip.sin_addr, 4);
    return gid;
  }
  if (address.storage.ss_family == AF_INET6) {
    const auto& ip = reinterpret_cast<const sockaddr_in6&>(address.storage);
    std::memcpy(gid.data(), &ip.sin6_addr, 16);
    return gid;
  }
  return std::nullopt;
}

VerbsRules VerbsRules::thunderbolt() {
  return {.qp_type = IBV_QPT_UC,
          .frame_bytes = 4096,
          .frames_max = 4095,
          .region_alignment = 16 * 1024,
          .region_bytes_max = size_t{1} << 30,
          .may_cross_4gib = false,
          .receives_early = false};
}

std::string VerbsPort::text() const { return fmt::format("{} port {}", device, number); }

Result<VerbsPort> find_port(const VerbsTable& table, const SocketAddress& local,
                            const std::vector<InfinibandAddress>& infiniband) {
  const auto wanted = gid_of(local);
  if (!wanted) return Status::node("RDMA needs a peer that is reached over IP");
  const std::string wanted_text = text_of(*wanted);
  std::optional<VerbsPort> found;
  std::string others;
  const auto note = [&others](const std::string& what) {
    others += (others.empty() ? "" : "; ") + what;
  };
  const auto look = [&](const OpenDevice& device) {
    if (!device.is_open()) {
      note(fmt::format("{} cannot be opened (permission on /dev/infiniband?)", device.name()));
      return false;
    }
    const auto attributes = device.attributes();
    for (int number = 1; attributes && number <= attributes->phys_port_cnt; ++number) {
      const auto port = device.port(static_cast<uint8_t>(number));
      if (!port) continue;
      const std::string name = fmt::format("{} port {}", device.name(), number);
      std::string addresses;
      for (const GidEntry& entry : device.gids(static_cast<uint8_t>(number), *port)) {
        if (!is_usable(entry, *port)) continue;
        const std::vector<std::string> own = addresses_of(entry, *port, infiniband);
        if (own.empty()) continue;
        addresses += fmt::format("{}{}", addresses.empty() ? "" : ", ", fmt::join(own, ", "));
        if (std::ranges::find(own, wanted_text) == own.end()) continue;
        if (port->state != IBV_PORT_ACTIVE) {
          note(fmt::format("{} has that address but is {}", name, state_name(port->state)));
          continue;
        }
        found = VerbsPort{.device = device.name(),
                          .number = static_cast<uint8_t>(number),
                          .gid_index = entry.index,
                          .gid = entry.gid,
                          .lid = port->lid,
                          .mtu = port->active_mtu,
                          .has_gid_routing = port->link_layer == IBV_LINK_LAYER_ETHERNET};
        return true;
      }
      note(fmt::format("{} has {}", name, addresses.empty() ? "no address" : addresses));
    }
    return false;
  };
  RETURN_IF_ERROR(for_each_device(table, look));
  if (found) return *found;
  return Status::node(fmt::format("no RDMA port has the address {} of this network: {}",
                                  wanted_text,
                                  others.empty() ? "this machine has no RDMA device" : others));
}

Result<std::vector<PortFacts>> list_ports(const VerbsTable& table,
                                          const std::vector<InfinibandAddress>& infiniband) {
  std::vector<PortFacts> ports;
  const auto look = [&](const OpenDevice& device) {
    if (!device.is_open()) {
      ports.push_back({.device = device.name(), .state = "cannot be opened"});
      return false;
    }
    const auto attributes = device.attributes();
    for (int number = 1; attributes && number <= attributes->phys_port_cnt; ++number) {
      const auto port = device.port(static_cast<uint8_t>(number));
      if (!port) continue;
      PortFacts facts{
          .device = device.name(),
          .number = static_cast<uint8_t>(number),
          .state = std::string(state_name(port->state)),
          .link = port->link_layer == IBV_LINK_LAYER_ETHERNET ? "Ethernet" : "InfiniBand",
          .mtu = mtu_bytes(port->active_mtu),
          .gbit_per_second = gbit_per_second(*port),
          .firmware = std::string(attributes->fw_ver, strnlen(attributes->fw_ver, 64)),
          .physical_state = std::string(physical_state_name(port->phys_state)),
          .mtu_max = mtu_bytes(port->max_mtu),
          .lid = port->lid};
      for (const GidEntry& entry : device.gids(static_cast<uint8_t>(number), *port)) {
        if (is_usable(entry, *port)) {
          std::ranges::move(addresses_of(entry, *port, infiniband),
                            std::back_inserter(facts.addresses));
        }
        facts.gids.push_back(
            {entry.index, std::string(gid_type_name(entry.type)), text_of(bytes_of(entry.gid))});
      }
      ports.push_back(std::move(facts));
    }
    return false;
  };
  RETURN_IF_ERROR(for_each_device(table, look));
  return ports;
}

Result<std::vector<PortFacts>> list_ports_bounded(const VerbsTable& table, Nanoseconds patience) {
  // The table is copied, since a call that is given up goes on.
  auto ports = run_bounded<Result<std::vector<PortFacts>>>([table] { return list_ports(table); },
                                                           Deadline::after(patience));
  if (ports.is_ok()) return std::move(*ports);
  return Status::node(std::string(kSilentDriver));
}

const std::string* meeting_address(const PortFacts& port, const std::set<std::string>& here) {
  const auto found = std::ranges::find_if(port.addresses, [&here](const std::string& address) {
    return !address.starts_with("fe80:") && here.contains(address);
  });
  return found == port.addresses.end() ? nullptr : &*found;
}

Result<std::string> choose_meeting_address(const std::vector<PortFacts>& ports,
                                           const std::set<std::string>& here) {
  std::string others;
  for (const PortFacts& port : ports) {
    const std::string* address = meeting_address(port, here);
    if (port.state == "active" && address != nullptr) return *address;
    others += others.empty() ? "" : "; ";
    if (port.link.empty()) {
      others += fmt::format("{} {}", port.device, port.state);
    } else {
      others += fmt::format("{} port {} is {}{}", port.device, port.number, port.state,
                            address == nullptr ? " and has no IP address of this machine" : "");
    }
  }
  return Status::node("no RDMA port can be used: " +
                      (others.empty() ? "this machine has no RDMA device" : others));
}

Result<std::string> local_rdma_address(const VerbsTable& table) {
  ASSIGN_OR_RETURN(const std::vector<PortFacts> ports, list_ports_bounded(table, kStartPatience));
  ASSIGN_OR_RETURN(const std::vector<InterfaceAddress> addresses, interface_addresses());
  std::set<std::string> here;
  for (const InterfaceAddress& address : addresses) here.insert(address.text);
  return choose_meeting_address(ports, here);
}

}  // namespace shoal::fabric

// DoctorFacts: what this machine tells about the ways between nodes, read once, judged elsewhere
// (findings.h).
//
// The kernel's part comes from /sys/class/infiniband, /sys/class/net, /proc and /dev, the library's
// from a VerbsTable. Two facts are tried out: whether a group can be joined over shared memory, and
// whether TCP works within the machine.
// Thread rule: reading takes some milliseconds, or seconds where something does not answer; values
// afterwards.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "fabric/tcp/interface_address.h"
#include "fabric/verbs/verbs_port.h"
#include "fabric/verbs/verbs_table.h"

namespace shoal::cli {

struct NetworkInterface {
  enum class Kind {
    kEthernet,
    kWireless,
    kThunderbolt,  // IP over Thunderbolt or USB4
    kInfiniBand,   // IP over InfiniBand
    kLoopback,
    kTunnel,   // VPNs
    kBridge,   // of containers and virtual machines; with hardware the machine's own way out
    kVirtual,  // no hardware of its own: dummy, veth, VLAN, bond
  };
  std::string name;
  Kind kind = Kind::kEthernet;
  bool is_up = false;        // switched on
  bool has_carrier = false;  // a cable with somebody at its end
  // Itself, or what it stands on: a bridge's port, a bond's member, a VLAN's interface.
  bool has_hardware = false;
  uint32_t mtu = 0;
  std::vector<std::string> ipv4{};
  std::vector<std::string> ipv6{};  // without scope
};

// An RDMA device as the kernel knows it.
struct RdmaDevice {
  std::string name;                       // "mlx5_0"
  std::string uverbs{};                   // "uverbs0", how programs reach it; empty: they cannot
  bool has_node = false;                  // /dev/infiniband/uverbs0
  int open_error = 0;                     // errno of opening it to read and write; 0: none
  std::map<int, std::string> networks{};  // network interface by port
};

struct RdmaFacts {
  Status library{};  // why libibverbs cannot be used
  Status listing{};  // why it cannot list devices
  // A driver does not answer: what only devices tell is missing (open_error, ports).
  bool is_silent = false;
  std::vector<RdmaDevice> devices{};
  std::vector<fabric::PortFacts> ports{};  // of devices that the library drives
  std::string kernel{};                    // its release: "6.1.0-18-cloud-amd64"
  bool has_soft_roce = false;              // the module rdma_rxe is loaded
  bool lacks_soft_roce = false;  // the kernel's modules are there, and rdma_rxe is not among them
};

// How much memory this process may lock, which is what registering it for a device takes.
struct LockedMemory {
  std::optional<uint64_t> limit;  // bytes; none: no limit
  bool is_exempt = false;         // the process may go beyond it (CAP_IPC_LOCK)
};

// RDMA over Thunderbolt on macOS. Nothing fills this in yet: Shoal does not run there.
struct ThunderboltFacts {
  bool is_enabled = false;  // by rdma_ctl
  int generation = 0;       // of the ports: 4, 5
  std::string bridge{};     // the bridge that holds the ports; empty: none does
};

struct DoctorFacts {
  Status shared_memory{};  // why a group cannot be joined over it
  Status tcp{};            // why there is no TCP within this machine
  Status ucx{};            // why libucp cannot be used
  std::vector<NetworkInterface> networks{};
  RdmaFacts rdma{};
  LockedMemory locked{};
  // What runs this process in a container: "docker", "kubernetes"; empty: nothing seen.
  std::string container{};
  std::string firewall{};  // "ufw", "firewalld", "nftables"; empty: none seen
  std::optional<ThunderboltFacts> thunderbolt{};
};

// What lies under a root ("" but in tests).
std::vector<NetworkInterface> read_networks(const std::string& root,
                                            const std::vector<fabric::InterfaceAddress>& addresses);
RdmaFacts read_rdma(const std::string& root, const Result<const fabric::VerbsTable*>& table);
LockedMemory read_locked_memory(const std::string& root);
std::string read_container(const std::string& root);
std::string read_firewall(const std::string& root);

// All of this machine, for a group of so many nodes.
DoctorFacts read_facts(int nodes);

}  // namespace shoal::cli

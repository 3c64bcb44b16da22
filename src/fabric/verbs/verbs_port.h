// VerbsPort: which port of which RDMA device leads to a peer, and what its queue pairs ask for.
//
// A port is chosen by the address from which TCP reaches the peer: the device has a GID with that
// address (RoCE v2; its index differs from host to host and is looked up, never assumed), or its
// GID is that of an interface of IP over InfiniBand with that address.
// Thread rule: pure functions over a table. What asks a device blocks as long as its driver does,
// where nothing else is said.
#pragma once

#include <netinet/in.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "fabric/tcp/address.h"
#include "fabric/tcp/infiniband_address.h"
#include "fabric/verbs/verbs_table.h"

namespace shoal::fabric {

// An address as RoCE v2 puts it into a GID: IPv4 as IPv4-mapped IPv6 (RFC 4291, 2.5.5.2). None for
// what is no IP address.
using Gid = std::array<uint8_t, 16>;
std::optional<Gid> gid_of(const SocketAddress& address);

// What a provider's queue pairs ask for beyond what all do.
struct VerbsRules {
  ibv_qp_type qp_type = IBV_QPT_RC;
  // Not 0: a SEND and the RECV that takes it fill the same number of frames of so many bytes, and a
  // queue holds at most frames_max of them.
  uint32_t frame_bytes = 0;
  uint32_t frames_max = 0;
  // Of a memory region: where it may begin, how long it may be, and whether it may lie across a
  // multiple of 4 GiB.
  size_t region_alignment = 4096;
  size_t region_bytes_max = size_t{1} << 40;
  bool may_cross_4gib = true;
  // A receive can be posted before the queue pair is ready to send.
  bool receives_early = true;

  static VerbsRules linux_rc() { return {}; }
  // For devices that have nothing else; nothing asks for it but tests yet.
  static VerbsRules linux_uc() { return {.qp_type = IBV_QPT_UC}; }
  // RDMA over Thunderbolt on macOS 26.2, as Apple's TN3205 and the users of it describe it.
  static VerbsRules thunderbolt();
};

struct VerbsPort {
  std::string device;
  uint8_t number = 1;
  int gid_index = 0;
  ibv_gid gid{};
  uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  bool has_gid_routing = true;  // RoCE: packets are addressed by GID

  std::string text() const;  // "rxe0 port 1"
};

// The port whose GID is this address. kNode: none is; the message says for each device why not
// (no address of the network, another one, port down) and what to do.
// infiniband: the addresses of IP over InfiniBand.
Result<VerbsPort> find_port(
    const VerbsTable& table, const SocketAddress& local,
    const std::vector<InfinibandAddress>& infiniband = infiniband_addresses());

// An entry of a port's GID table.
struct GidFacts {
  int index = 0;
  std::string type{};     // "RoCE v2", "RoCE v1", "InfiniBand"
  std::string address{};  // as an IP address is written; IPv4 where it is mapped
};

// One port of a device, as `shoal info` shows it and `shoal doctor` judges it.
struct PortFacts {
  std::string device;
  uint8_t number = 1;
  std::string state;           // "active", "down", ...
  std::string link{};          // "Ethernet", "InfiniBand"
  uint32_t mtu = 0;            // bytes
  double gbit_per_second = 0;  // 0: unknown
  std::string firmware{};
  std::vector<std::string> addresses{};  // of RoCE v2 GIDs, or of IP over InfiniBand
  std::string physical_state{};          // "link up", "polling", ...
  uint32_t mtu_max = 0;                  // bytes that the device could do
  uint32_t lid = 0;                      // InfiniBand; 0: no subnet manager has given one
  std::vector<GidFacts> gids{};          // all
};
// kNode: the devices cannot be listed.
Result<std::vector<PortFacts>> list_ports(
    const VerbsTable& table,
    const std::vector<InfinibandAddress>& infiniband = infiniband_addresses());

inline constexpr std::string_view kSilentDriver = "the driver of an RDMA device does not answer";
inline constexpr Nanoseconds kPortPatience = std::chrono::seconds(2);
// list_ports(), given up after so long (see run_bounded()). kNode also: kSilentDriver.
Result<std::vector<PortFacts>> list_ports_bounded(const VerbsTable& table,
                                                  Nanoseconds patience = kPortPatience);

// The address at which a port is reached: the first one that an interface here has, so that it can
// be listened on, and that needs no scope. Null: there is none.
const std::string* meeting_address(const PortFacts& port, const std::set<std::string>& here);
// That of the first active port. kNode: there is none; the message says why for each port.
Result<std::string> choose_meeting_address(const std::vector<PortFacts>& ports,
                                           const std::set<std::string>& here);
// The same of this machine, within seconds: where the ranks of a local group meet.
Result<std::string> local_rdma_address(const VerbsTable& table);

// Bytes of an ibv_mtu.
constexpr uint32_t mtu_bytes(ibv_mtu mtu) { return 128U << static_cast<unsigned>(mtu); }

}  // namespace shoal::fabric

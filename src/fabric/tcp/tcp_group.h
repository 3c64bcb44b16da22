// The TCP maker: a full mesh of connections, formed through rank 0; and that of verbs and UCX,
// whose links come up over these connections.
//
// Rank 0 listens; the others connect to it with rank and secret and say where they listen; rank 0
// sends everyone the table of names and addresses; then each rank connects to all lower ones. Each
// pair has a data and a liveness connection. The table is specified in docs/fabric.md.
// Thread rule: one thread per rank.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/unique_fd.h"
#include "fabric/fabric.h"
#include "fabric/group_setup.h"
#include "fabric/tcp/acceptor.h"
#include "fabric/tcp/address.h"
#include "fabric/ucx/ucx_context.h"
#include "fabric/verbs/verbs_rail.h"

namespace shoal::fabric {

struct TcpGroupOptions {
  GroupSetup setup;
  // Rank 0: its listening socket (see listen_tcp). Others: not set.
  UniqueFd listener;
  // Others: where rank 0 listens.
  HostPort rank0;
  TcpTuning tuning{};
  AcceptorOptions acceptor;
  // One connection and handshake may take this long.
  Nanoseconds connect_max{std::chrono::seconds(10)};
  int ranks_on_host = 1;
  // With a table: messages go over RDMA, and TCP only brings the queue pairs up and watches the
  // peers.
  VerbsProvider verbs{};
  // The same with UCX; at most one of both has a table.
  UcxProvider ucx{};
};

Result<std::unique_ptr<Fabric>> connect_tcp_group(TcpGroupOptions options,
                                                  const Deadline& deadline);

// One row of the table that rank 0 sends.
struct GroupTableRow {
  std::string node_name;
  uint32_t family = 0;                  // 4 or 6; 0 for rank 0, which everybody has
  std::array<std::byte, 16> address{};  // network order; the first 4 for family 4
  uint32_t port = 0;
};
std::vector<std::byte> encode_group_table(std::span<const GroupTableRow> rows);
// Of exactly `size` rows; kGroup for rubbish.
Result<std::vector<GroupTableRow>> decode_group_table(std::span<const std::byte> bytes, int size);

}  // namespace shoal::fabric

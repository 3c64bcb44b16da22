#include "fabric/tcp/tcp_group.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/bytes.h"
#include "base/log.h"
#include "fabric/link/printable.h"
#include "fabric/link/stream.h"

namespace shoal::fabric {
namespace {

constexpr uint32_t kTableMagic = 0x4c425453;  // "STBL"
constexpr size_t kTableHeaderBytes = 8;
constexpr size_t kTableBytesMax = 16 * 1024;
constexpr size_t kNameBytesMax = 63;

GroupTableRow row_of(const NodeIdentity& node, const SocketAddress& seen_at) {
  GroupTableRow row{.node_name = node.node_name, .family = 0, .address = {}, .port = 0};
  row.port = node.listen_port;
  if (seen_at.storage.ss_family == AF_INET6) {
    row.family = 6;
    const auto& address = reinterpret_cast<const sockaddr_in6&>(seen_at.storage);
    std::memcpy(row.address.data(), &address.sin6_addr, 16);
  } else {
    row.family = 4;
    const auto& address = reinterpret_cast<const sockaddr_in&>(seen_at.storage);
    std::memcpy(row.address.data(), &address.sin_addr, 4);
  }
  return row;
}

// A row as an address to connect to. Link-local addresses get the scope of `near`, our own address
// towards rank 0: a scope id means nothing on another machine.
SocketAddress address_of(const GroupTableRow& row, const SocketAddress& near) {
  SocketAddress address;
  if (row.family == 6) {
    sockaddr_in6 raw{};
    raw.sin6_family = AF_INET6;
    std::memcpy(&raw.sin6_addr, row.address.data(), 16);
    if (near.storage.ss_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&raw.sin6_addr)) {
      raw.sin6_scope_id = reinterpret_cast<const sockaddr_in6&>(near.storage).sin6_scope_id;
    }
    std::memcpy(&address.storage, &raw, sizeof(raw));
    address.bytes = sizeof(raw);
  } else {
    sockaddr_in raw{};
    raw.sin_family = AF_INET;
    std::memcpy(&raw.sin_addr, row.address.data(), 4);
    std::memcpy(&address.storage, &raw, sizeof(raw));
    address.bytes = sizeof(raw);
  }
  address.set_port(static_cast<uint16_t>(row.port));
  return address;
}

// One rank's way into the group.
class Joiner {
 public:
  Joiner(TcpGroupOptions options, const Deadline& deadline)
      : options_(std::move(options)), deadline_(deadline), links_(size()), rows_(size()) {}

  Result<std::unique_ptr<Fabric>> join();

 private:
  struct Link {
    UniqueFd liveness;
    UniqueFd data;
  };
  const GroupSetup& setup() const { return options_.setup; }
  size_t size() const { return static_cast<size_t>(options_.setup.size); }
  size_t rank() const { return static_cast<size_t>(options_.setup.rank); }

  Status check_newcomer(const NodeIdentity& peer) const;
  Status take(Acceptor& acceptor, std::string_view waiting_for);
  Status gather_at_rank0(Acceptor& acceptor);
  Status join_rank0();
  Status receive_table(UniqueFd& control);
  Status connect_to_lower();
  Result<UniqueFd> open(const SocketAddress& address, int peer, LinkPurpose purpose);
  Status shake_hands(int fd, int peer, LinkPurpose purpose, std::string_view address);
  Result<std::unique_ptr<Fabric>> build();

  TcpGroupOptions options_;
  Deadline deadline_;
  std::vector<Link> links_;          // by rank
  std::vector<GroupTableRow> rows_;  // by rank
  SocketAddress rank0_address_;
  SocketAddress own_address_;  // towards rank 0
  uint16_t listen_port_ = 0;
};

// Only what can be told before the links exist; called again when they do.
Status Joiner::check_newcomer(const NodeIdentity& peer) const {
  const bool is_higher = peer.rank > rank();
  if (!is_higher) return Status::group("a lower rank is connected to, it does not connect");
  const Link& link = links_[peer.rank];
  const bool is_taken =
      peer.purpose == LinkPurpose::kLiveness ? link.liveness.is_valid() : link.data.is_valid();
  if (is_taken) {
    return Status::busy("rank " + std::to_string(peer.rank) + " of this group has joined " +
                        setup().node_name + " already");
  }
  return Status::ok();
}

// Takes the next connection of a higher rank.
Status Joiner::take(Acceptor& acceptor, std::string_view waiting_for) {
  ASSIGN_OR_RETURN(Acceptor::Accepted accepted, acceptor.next(waiting_for, deadline_));
  RETURN_IF_ERROR(tune_tcp(accepted.socket.get(), options_.tuning));
  Link& link = links_[accepted.peer.rank];
  if (accepted.peer.purpose == LinkPurpose::kData) {
    link.data = std::move(accepted.socket);
    return Status::ok();
  }
  if (setup().rank == 0) {
    ASSIGN_OR_RETURN(const SocketAddress seen_at, peer_address(accepted.socket.get()));
    rows_[accepted.peer.rank] = row_of(accepted.peer, seen_at);
  }
  link.liveness = std::move(accepted.socket);
  return Status::ok();
}

Status Joiner::gather_at_rank0(Acceptor& acceptor) {
  rows_[0].node_name = setup().node_name;
  const auto is_waiting_for = [&](size_t peer) { return !links_[peer].liveness.is_valid(); };
  while (true) {
    std::string missing;
    for (size_t peer = 1; peer < size(); ++peer) {
      if (is_waiting_for(peer)) missing += (missing.empty() ? "" : ", ") + std::to_string(peer);
    }
    if (missing.empty()) break;
    RETURN_IF_ERROR(take(acceptor, "waiting for ranks " + missing + " to connect"));
  }
  const std::vector<std::byte> table = encode_group_table(rows_);
  for (size_t peer = 1; peer < size(); ++peer) {
    const Status status = write_all(links_[peer].liveness.get(), table, deadline_);
    if (!status.is_ok()) {
      return Status::group("rank " + std::to_string(peer) + " (" + rows_[peer].node_name + ") " +
                           status.message());
    }
  }
  return Status::ok();
}

Status Joiner::shake_hands(int fd, int peer, LinkPurpose purpose, std::string_view address) {
  HandshakeConfig config = make_handshake_config(setup(), HandshakeRole::kInitiator, purpose);
  config.expected_rank = peer;
  config.self.listen_port = listen_port_;
  const std::string who = "rank " + std::to_string(peer) + " at " + std::string(address);
  const auto identity =
      run_handshake(fd, std::move(config), who, deadline_.at_most(options_.connect_max));
  return identity.is_ok() ? Status::ok() : identity.status();
}

Status Joiner::join_rank0() {
  const Deadline deadline = deadline_.at_most(options_.connect_max);
  ASSIGN_OR_RETURN(UniqueFd control, connect_tcp(options_.rank0, deadline));
  RETURN_IF_ERROR(tune_tcp(control.get(), options_.tuning));
  ASSIGN_OR_RETURN(rank0_address_, peer_address(control.get()));
  ASSIGN_OR_RETURN(own_address_, local_address(control.get()));
  // Others reach us where rank 0 sees us.
  SocketAddress listen_at = own_address_;
  listen_at.set_port(0);
  ASSIGN_OR_RETURN(options_.listener, listen_tcp(listen_at));
  ASSIGN_OR_RETURN(const SocketAddress listening, local_address(options_.listener.get()));
  listen_port_ = listening.port();
  RETURN_IF_ERROR(shake_hands(control.get(), 0, LinkPurpose::kLiveness, to_text(options_.rank0)));
  return receive_table(control);
}

Status Joiner::receive_table(UniqueFd& control) {
  std::array<std::byte, kTableHeaderBytes> header;
  Status status = read_all(control.get(), header, deadline_);
  std::vector<std::byte> table(header.begin(), header.end());
  if (status.is_ok()) {
    ByteReader reader(header);
    CHECK(reader.skip(4).is_ok());
    const uint32_t bytes = *reader.read<uint32_t>();
    if (bytes > kTableBytesMax) return Status::group("rank 0 sent an impossible table");
    table.resize(kTableHeaderBytes + bytes);
    status = read_all(control.get(), std::span(table).subspan(kTableHeaderBytes), deadline_);
  }
  if (!status.is_ok()) {
    return Status::group("rank 0 at " + to_text(options_.rank0) +
                         ", while we wait for the table of the group, " + status.message());
  }
  Result<std::vector<GroupTableRow>> rows = decode_group_table(table, setup().size);
  if (!rows.is_ok()) return rows.status().with_context("rank 0 at " + to_text(options_.rank0));
  rows_ = std::move(*rows);
  links_[0].liveness = std::move(control);
  return Status::ok();
}

Result<UniqueFd> Joiner::open(const SocketAddress& address, int peer, LinkPurpose purpose) {
  const Deadline deadline = deadline_.at_most(options_.connect_max);
  ASSIGN_OR_RETURN(UniqueFd fd, connect_tcp(address, deadline));
  RETURN_IF_ERROR(tune_tcp(fd.get(), options_.tuning));
  RETURN_IF_ERROR(shake_hands(fd.get(), peer, purpose, address.text()));
  return fd;
}

Status Joiner::connect_to_lower() {
  for (size_t peer = 0; peer < rank(); ++peer) {
    const SocketAddress address =
        peer == 0 ? rank0_address_ : address_of(rows_[peer], own_address_);
    const int number = static_cast<int>(peer);
    if (peer > 0) {
      ASSIGN_OR_RETURN(links_[peer].liveness, open(address, number, LinkPurpose::kLiveness));
    }
    ASSIGN_OR_RETURN(links_[peer].data, open(address, number, LinkPurpose::kData));
  }
  return Status::ok();
}

Result<std::unique_ptr<Fabric>> Joiner::build() {
  std::vector<std::string> names;
  names.reserve(rows_.size());
  for (const GroupTableRow& row : rows_) names.push_back(row.node_name);
  FabricBuilder builder(setup(), std::move(names));
  for (size_t peer = 0; peer < size(); ++peer) {
    if (peer == rank()) continue;
    Link& link = links_[peer];
    const int number = static_cast<int>(peer);
    if (options_.verbs.table != nullptr) {
      RETURN_IF_ERROR(builder.add_verbs(number, options_.verbs, std::move(link.data),
                                        std::move(link.liveness), deadline_));
    } else if (options_.ucx.table != nullptr) {
      RETURN_IF_ERROR(builder.add_ucx(number, options_.ucx, std::move(link.data),
                                      std::move(link.liveness), deadline_));
    } else {
      RETURN_IF_ERROR(builder.add_tcp(number, std::move(link.data), std::move(link.liveness)));
    }
  }
  if (options_.verbs.table != nullptr) {
    RETURN_IF_ERROR(builder.finish_verbs_links(options_.verbs, deadline_));
  }
  return builder.finish({.ranks_on_host = options_.ranks_on_host,
                         .threads_per_rank = setup().fabric.threads_per_rank});
}

Result<std::unique_ptr<Fabric>> Joiner::join() {
  if (setup().rank > 0) RETURN_IF_ERROR(join_rank0());
  Acceptor acceptor(options_.listener.get(), setup(), options_.acceptor,
                    [this](const NodeIdentity& peer) { return check_newcomer(peer); });
  if (setup().rank == 0) RETURN_IF_ERROR(gather_at_rank0(acceptor));
  RETURN_IF_ERROR(connect_to_lower());
  for (size_t peer = rank() + 1; peer < size(); ++peer) {
    while (!links_[peer].liveness.is_valid() || !links_[peer].data.is_valid()) {
      RETURN_IF_ERROR(take(acceptor, "waiting for rank " + std::to_string(peer) + " (" +
                                         rows_[peer].node_name + ") to connect"));
    }
  }
  return build();
}

}  // namespace

std::vector<std::byte> encode_group_table(std::span<const GroupTableRow> rows) {
  ByteWriter body;
  for (const GroupTableRow& row : rows) {
    body.write_string(std::string_view(row.node_name).substr(0, kNameBytesMax));
    body.write(row.family);
    body.write_bytes(row.address);
    body.write(row.port);
  }
  ByteWriter writer;
  writer.write(kTableMagic);
  writer.write(static_cast<uint32_t>(body.bytes().size()));
  writer.write_bytes(body.bytes());
  return writer.take();
}

namespace {

Result<std::vector<GroupTableRow>> read_group_table(std::span<const std::byte> bytes, int size) {
  ByteReader reader(bytes);
  ASSIGN_OR_RETURN(const uint32_t magic, reader.read<uint32_t>());
  ASSIGN_OR_RETURN(const uint32_t body_bytes, reader.read<uint32_t>());
  if (magic != kTableMagic || body_bytes != reader.left()) {
    return Status::group("the table of the group is rubbish");
  }
  std::vector<GroupTableRow> rows(static_cast<size_t>(size));
  for (GroupTableRow& row : rows) {
    ASSIGN_OR_RETURN(const std::string_view name, reader.read_string(kNameBytesMax));
    row.node_name = printable(name);
    ASSIGN_OR_RETURN(row.family, reader.read<uint32_t>());
    ASSIGN_OR_RETURN(const auto address, reader.read_bytes(row.address.size()));
    std::ranges::copy(address, row.address.begin());
    ASSIGN_OR_RETURN(row.port, reader.read<uint32_t>());
    const bool is_known = row.family == 0 || row.family == 4 || row.family == 6;
    if (!is_known || row.port > 65535) {
      return Status::group("the table of the group has an impossible address");
    }
  }
  if (reader.left() != 0) return Status::group("the table of the group is too long");
  return rows;
}

}  // namespace

Result<std::vector<GroupTableRow>> decode_group_table(std::span<const std::byte> bytes, int size) {
  Result<std::vector<GroupTableRow>> rows = read_group_table(bytes, size);
  if (rows.is_ok() || rows.status().code() == StatusCode::kGroup) return rows;
  return Status::group("the table of the group is rubbish: " + rows.status().message());
}

Result<std::unique_ptr<Fabric>> connect_tcp_group(TcpGroupOptions options,
                                                  const Deadline& deadline) {
  RETURN_IF_ERROR(check_group_setup(options.setup));
  CHECK(options.setup.rank > 0 || options.setup.size == 1 || options.listener.is_valid());
  Joiner joiner(std::move(options), deadline);
  Result<std::unique_ptr<Fabric>> fabric = joiner.join();
  if (fabric.is_ok()) return fabric;
  LOG(error, "joining the group: {}", fabric.status().message());
  return fabric.status().with_context("joining the group");
}

}  // namespace shoal::fabric

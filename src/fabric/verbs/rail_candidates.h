// RailCandidates: which ports of two machines may be joined by a cable beside the one in use.
//
// Two ports may be when each has an address in the other's network. Whether they are, and which of
// several, only a message shows (bring_up.h): machines that are cabled twice often have all their
// addresses in one network, such as that of self-assigned ones.
// Thread rule: pure functions, but for exchange_candidates(): one thread per socket.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "fabric/tcp/address.h"
#include "fabric/tcp/interface_address.h"
#include "fabric/verbs/verbs_port.h"

namespace shoal::fabric {

// The address of a port that is up.
struct RailCandidate {
  Gid address{};
  uint32_t prefix_bits = 128;  // of its network; of a mapped address from 96 on

  bool operator==(const RailCandidate&) const = default;
};

inline constexpr size_t kRailCandidatesMax = 8;

// Of these ports those that are up and have an address of an interface here, each by the first one,
// in their order; not the one in use. At most kRailCandidatesMax.
std::vector<RailCandidate> rail_candidates(std::span<const PortFacts> ports,
                                           std::span<const InterfaceAddress> addresses,
                                           const VerbsPort& in_use);
// The other way round than gid_of().
SocketAddress socket_address(const Gid& address);

// Indices into the lower and the higher rank's candidates.
struct RailPair {
  size_t lower = 0;
  size_t higher = 0;

  bool operator==(const RailPair&) const = default;
};
// All pairs that may be joined, those whose addresses have most in common first. The same on both
// sides.
std::vector<RailPair> rail_pairs(std::span<const RailCandidate> lower,
                                 std::span<const RailCandidate> higher);

std::vector<std::byte> encode_candidates(std::span<const RailCandidate> candidates);
// Of the bytes behind the count. kGroup, as a sentence about the peer.
Result<std::vector<RailCandidate>> decode_candidates(std::span<const std::byte> bytes);
// Tells the peer, and hears what it has. kGroup, as a sentence about the peer.
Result<std::vector<RailCandidate>> exchange_candidates(int socket,
                                                       std::span<const RailCandidate> own,
                                                       const Deadline& deadline);

}  // namespace shoal::fabric
